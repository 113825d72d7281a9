package qemu

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"pvabi/conformance"
)

// fakeVariable makes this test binary a QEMU that does what its value says.
const fakeVariable = "PVABI_TEST_FAKE_QEMU"

func TestMain(m *testing.M) {
	if script := os.Getenv(fakeVariable); script != "" {
		fake(script)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// What a guest sends, as vmtest's agents frame it.
const (
	identity = `{"hugelgupf_vmtest_guest_action":"guestevent","Actual":{"identity":{"goarch":"amd64","machine":"x86_64","release":"7.2.12","cpus":2}}}`
	loaded   = `{"hugelgupf_vmtest_guest_action":"guestevent","Actual":{"loaded":{}}}`
	result   = `{"hugelgupf_vmtest_guest_action":"guestevent","Actual":{"result":{"rule":"x/y/z","verdict":"pass"}}}`
	finished = `{"hugelgupf_vmtest_guest_action":"guestevent","Actual":{"finished":true}}`
	empty    = `{"hugelgupf_vmtest_guest_action":"guestevent","Actual":{}}`
	done     = `{"hugelgupf_vmtest_guest_action":"done","Actual":{}}`
)

// fake follows a script, a list of commands separated by ";":
//
//	TEXT          a line for the event channel, if it begins with {
//	raw TEXT      the same for what is no event
//	console TEXT  a line for the console
//	stderr TEXT   a line for standard error
//	hang          wait to be killed
//	once FILE     hang, unless the file exists; make it
//	exit N        end with a status
//	signal N      end by a signal
//	args          the command line goes to the console
//	pid           the process and its group go to the console
func fake(script string) {
	signal.Reset()
	value := func(option, prefix string) string {
		for i, arg := range os.Args {
			if arg == option && i+1 < len(os.Args) && strings.HasPrefix(os.Args[i+1], prefix) {
				_, path, _ := strings.Cut(os.Args[i+1], "path=")
				return strings.ReplaceAll(path, ",,", ",")
			}
		}
		return ""
	}
	open := func(name string, flag int) *os.File {
		f, err := os.OpenFile(name, flag, 0)
		if err != nil {
			fmt.Fprintln(os.Stderr, "fake qemu:", err)
			os.Exit(99)
		}
		return f
	}
	channel := open(value("-chardev", "pipe,"), os.O_RDWR)
	console := open(value("-chardev", "file,"), os.O_WRONLY|os.O_APPEND)
	for command := range strings.SplitSeq(script, ";") {
		word, rest, _ := strings.Cut(command, " ")
		var number int
		_, _ = fmt.Sscan(rest, &number)
		switch {
		case strings.HasPrefix(command, "{"):
			fmt.Fprintln(channel, command)
		case word == "raw":
			fmt.Fprintln(channel, rest)
		case word == "console":
			fmt.Fprintf(console, "%s\r\n", rest)
		case word == "stderr":
			fmt.Fprintln(os.Stderr, rest)
		case word == "args":
			fmt.Fprintln(console, strings.Join(os.Args, "\n"))
		case word == "pid":
			fmt.Fprintln(console, os.Getpid(), syscall.Getpgrp())
		case word == "hang":
			time.Sleep(time.Hour)
		case word == "once":
			if f, err := os.OpenFile(rest, os.O_CREATE|os.O_EXCL, 0o644); err == nil {
				f.Close()
				time.Sleep(time.Hour)
			}
		case word == "exit":
			os.Exit(number)
		case word == "signal":
			// Go's runtime would make an ordinary end of some signals.
			_ = syscall.Exec("/bin/sh", []string{"sh", "-c", fmt.Sprintf("kill -%d $$", number)}, os.Environ())
		default:
			fmt.Fprintf(os.Stderr, "fake qemu: unknown command %q\n", command)
			os.Exit(99)
		}
	}
}

// kinds collects what a run hands on.
type kinds []string

func (k *kinds) add(e conformance.Event) {
	switch {
	case e.Identity != nil:
		*k = append(*k, "identity")
	case e.Loaded != nil:
		*k = append(*k, "loaded")
	case e.Result != nil:
		*k = append(*k, e.Result.Rule)
	case e.Fatal != "":
		*k = append(*k, "fatal")
	case e.Unreached != "":
		*k = append(*k, "unreached")
	case e.Finished:
		*k = append(*k, "finished")
	default:
		*k = append(*k, "other")
	}
}

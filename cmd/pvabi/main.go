// Command pvabi checks hypervisors and guest kernels against the paravirtual ABI that
// each relies on the other for.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"pvabi/conformance"
)

const usage = `usage: pvabi COMMAND [flags] [arguments]

  targets   what there is, what can run here, and why the rest cannot
  fetch     fetch what the targets boot from into the cache
  check     hold a kernel that you built, or its tree, against the ABI: drift, then run
  run       boot, check, report
  bench     measure what an exit to the hypervisor costs, with and without shared areas
  matrix    run targets with several kernels and QEMUs, or plan that for a CI engine
  mutate    change each value of the ABI in turn, and tell which rule notices
  agent     check the hypervisor below this very machine, as a plain program
  spec      print what the ABI says, with its sources
  diff      compare two results.json
  report    make one page, or a summary, of the results of many runs
  drift     hold a kernel tree's headers, or a built kernel's types, against the ABI

pvabi COMMAND -h lists a command's flags.

exit status: 0 no rule that was looked at is broken; 1 a rule is broken (diff: a rule
got worse; drift: a number moved, vanished or is new; mutate: no rule noticed a change); 2 the equipment failed, nothing was looked at, or the command line is wrong
`

// command is one of pvabi's commands. It returns the exit status; an error is printed
// and makes it 2.
type command func(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error)

var commands = map[string]command{
	"targets": targets,
	"fetch":   fetch,
	"check":   check,
	"run":     run,
	"bench":   runBench,
	"mutate":  mutate,
	"agent":   runAgent,
	"spec":    spec,
	"diff":    diff,
	"drift":   driftCommand,
	"matrix":  matrix,
	"report":  reportCommand,
}

func main() {
	// The first signal ends the work in order: guests are killed, files removed,
	// finished results kept. A second one ends the process.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop)
	status := dispatch(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

func dispatch(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return conformance.ExitFailed
	}
	if args[0] == "help" || args[0] == "-h" || args[0] == "-help" || args[0] == "--help" {
		fmt.Fprint(stdout, usage)
		return conformance.ExitConforms
	}
	c := commands[args[0]]
	if c == nil {
		fmt.Fprintf(stderr, "pvabi: unknown command %q\n%s", args[0], usage)
		return conformance.ExitFailed
	}
	out := &output{w: stdout}
	status, err := c(ctx, args[1:], out, stderr)
	if err == nil {
		err = out.err
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		return conformance.ExitConforms
	case errors.Is(err, errUsage):
		return max(status, conformance.ExitFailed)
	case err != nil && ctx.Err() != nil:
		fmt.Fprintf(stderr, "pvabi %s: %v: %v\n", args[0], context.Cause(ctx), err)
		return max(status, conformance.ExitFailed)
	case err != nil:
		fmt.Fprintf(stderr, "pvabi %s: %v\n", args[0], err)
		return max(status, conformance.ExitFailed)
	}
	return status
}

// output keeps the first error of writing, so that a command need not look at each.
type output struct {
	w   io.Writer
	err error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// Fd is that of the file that is written to, as of an [os.File].
func (o *output) Fd() uintptr {
	if f, ok := o.w.(interface{ Fd() uintptr }); ok {
		return f.Fd()
	}
	return ^uintptr(0)
}

// errUsage stands for a mistake in the command line that was already told.
var errUsage = errors.New("usage")

// flags makes the flag set of a command. positional describes what follows the flags.
func flags(name, positional, text string, stderr io.Writer) *flag.FlagSet {
	fs := flag.NewFlagSet("pvabi "+name, flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() {
		fmt.Fprintf(stderr, "usage: pvabi %s [flags] %s\n\n%s\n\n", name, positional, text)
		fs.PrintDefaults()
	}
	return fs
}

// parse parses a command's flags; package flag has told of any error.
func parse(fs *flag.FlagSet, args []string) error {
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return errUsage
	}
	for _, a := range fs.Args() {
		if strings.HasPrefix(a, "-") && len(a) > 1 && !slices.Contains(args, "--") {
			return fmt.Errorf("%s stands behind an argument; flags come first", a)
		}
	}
	return nil
}

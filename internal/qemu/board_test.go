package qemu

import (
	"reflect"
	"strings"
	"testing"

	vmtest "github.com/hugelgupf/vmtest/qemu"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/conformance"
)

func TestBoards(t *testing.T) {
	for _, b := range Boards {
		got, err := BoardOf(b.GOARCH)
		require.NoError(t, err)
		assert.Equal(t, b, got)
		assert.True(t, vmtest.Arch(b.GOARCH).Valid(), "vmtest boots %s", b.GOARCH)
		for what, value := range map[string]string{"System": b.System, "Machine": b.Machine, "CPU": b.CPU, "Console": b.Console, "Uname": b.Uname} {
			assert.NotEmpty(t, value, "%s: %s", b.GOARCH, what)
		}
		assert.Positive(t, b.Memory, b.GOARCH)
	}
	_, err := BoardOf("mips64")
	assert.ErrorContains(t, err, "amd64, ppc64le, s390x, loong64")
}

func TestChannelOverSerial(t *testing.T) {
	for _, b := range Boards {
		t.Run(b.GOARCH, func(t *testing.T) {
			events := make(chan conformance.Event)
			var failed error
			o, err := vmtest.OptionsFor(vmtest.Arch(b.GOARCH), vmtest.WithQEMUCommand("qemu"),
				vmtest.WithQEMUArgs("before"), channel(b.Channel != "", events, &failed), vmtest.WithQEMUArgs("after"))
			require.NoError(t, err)
			args := strings.Join(o.QEMUArgs, " ")
			if b.Channel == "" {
				assert.Regexp(t, `before -device virtio-serial -device virtserialport,chardev=(\S+),name=pvabi -chardev pipe,id=\S+,path=\S+ after$`, args)
				return
			}
			assert.Regexp(t, `before -serial chardev:(\S+) -chardev file,id=\S+,path=/proc/self/fd/3 after$`, args)
			assert.NotContains(t, args, "virt")
			c := Config{Board: b}
			assert.Contains(t, c.append(), "pvabi.channel="+b.Channel)
		})
	}
	assert.ErrorContains(t, overSerial(&vmtest.Options{}), "is not what it was")
}

// TestFields sets each field of an event by itself.
func TestFields(t *testing.T) {
	assert.Zero(t, fields(conformance.Event{}))
	for i := range reflect.TypeFor[conformance.Event]().NumField() {
		var e conformance.Event
		field := reflect.ValueOf(&e).Elem().Field(i)
		switch field.Kind() {
		case reflect.Pointer:
			field.Set(reflect.New(field.Type().Elem()))
		case reflect.String:
			field.SetString("text")
		case reflect.Bool:
			field.SetBool(true)
		}
		assert.Equal(t, 1, fields(e), "%+v", e)
	}
}

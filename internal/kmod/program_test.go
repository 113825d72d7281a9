package kmod

import (
	"bytes"
	"debug/elf"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestProgram(t *testing.T) {
	content := []byte("content")
	for goarch, l := range layouts {
		file, err := Program(goarch, content)
		require.NoError(t, err)
		f, err := elf.NewFile(bytes.NewReader(file))
		require.NoError(t, err)
		assert.Equal(t, l.machine, f.Machine)
		assert.Equal(t, l.order, f.ByteOrder)
		assert.Equal(t, elf.ET_EXEC, f.Type)
		require.Len(t, f.Progs, 1)
		p := f.Progs[0]
		assert.Equal(t, elf.PF_R|elf.PF_W|elf.PF_X, p.Flags)
		assert.Zero(t, (p.Vaddr-p.Off)%p.Align, "what is mapped by pages")
		got, err := io.ReadAll(p.Open())
		require.NoError(t, err)
		at := ProgramAddress - p.Vaddr
		assert.Equal(t, content, got[at:], goarch)
		assert.Zero(t, ProgramAddress%128)
		assert.Equal(t, uint64(ProgramStack), p.Memsz-at-uint64(len(content)))
	}
	_, err := Program("mips64", nil)
	assert.ErrorContains(t, err, "mips64")
}

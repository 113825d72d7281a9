package drift

import (
	"io"
	"io/fs"
	"time"
)

// emptyFile is a file without contents.
type emptyFile struct{ name string }

func (f emptyFile) Stat() (fs.FileInfo, error) { return f, nil }
func (emptyFile) Read([]byte) (int, error)     { return 0, io.EOF }
func (emptyFile) Close() error                 { return nil }

func (f emptyFile) Name() string     { return f.name }
func (emptyFile) Size() int64        { return 0 }
func (emptyFile) Mode() fs.FileMode  { return 0o444 }
func (emptyFile) ModTime() time.Time { return time.Time{} }
func (emptyFile) IsDir() bool        { return false }
func (emptyFile) Sys() any           { return nil }

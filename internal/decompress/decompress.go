// Package decompress reads files that are compressed in one of the ways in which Linux
// distributions compress kernel modules.
package decompress

import (
	"compress/gzip"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// All reads all of r, which is compressed in the way that a file is whose name ends in
// ending: ".xz", ".zst", ".gz"; with any other ending it is not. More than limit bytes
// are an error.
func All(r io.Reader, ending string, limit int64) ([]byte, error) {
	switch ending {
	case ".xz":
		d, err := xz.NewReader(r)
		if err != nil {
			return nil, err
		}
		r = d
	case ".zst":
		d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(uint64(limit)))
		if err != nil {
			return nil, err
		}
		defer d.Close()
		r = d
	case ".gz":
		d, err := gzip.NewReader(r)
		if err != nil {
			return nil, err
		}
		r = d
	}
	content, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(content)) > limit {
		return nil, fmt.Errorf("larger than %d bytes", limit)
	}
	return content, nil
}

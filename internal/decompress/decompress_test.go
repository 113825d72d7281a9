package decompress

import (
	"bytes"
	"compress/gzip"
	"io"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/ulikunitz/xz"
)

func TestAll(t *testing.T) {
	want := bytes.Repeat([]byte("module "), 1000)
	writers := map[string]func(io.Writer) (io.WriteCloser, error){
		".gz":  func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil },
		".xz":  func(w io.Writer) (io.WriteCloser, error) { return xz.NewWriter(w) },
		".zst": func(w io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(w) },
		"":     func(w io.Writer) (io.WriteCloser, error) { return plain{w}, nil },
	}
	for ending, writer := range writers {
		t.Run("ending "+ending, func(t *testing.T) {
			var b bytes.Buffer
			w, err := writer(&b)
			require.NoError(t, err)
			_, err = w.Write(want)
			require.NoError(t, err)
			require.NoError(t, w.Close())

			got, err := All(bytes.NewReader(b.Bytes()), ending, int64(len(want)))
			require.NoError(t, err)
			assert.Equal(t, want, got)

			_, err = All(bytes.NewReader(b.Bytes()), ending, int64(len(want)-1))
			assert.Error(t, err, "more than the limit")
			if ending != "" {
				_, err = All(bytes.NewReader(b.Bytes()[:b.Len()/2]), ending, 1<<20)
				assert.Error(t, err, "cut off")
				_, err = All(bytes.NewReader(want), ending, 1<<20)
				assert.Error(t, err, "not compressed")
			}
		})
	}
}

type plain struct{ io.Writer }

func (plain) Close() error { return nil }

package kvm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// Statistics are what KVM counts about a machine or a CPU, in its binary format:
// a header, a descriptor for each statistic, and a block of 64-bit values (struct
// kvm_stats_header and kvm_stats_desc, include/uapi/linux/kvm.h; api.rst 4.133,
// KVM_GET_STATS_FD). All is in the host's byte order, and of everything but the values
// it is promised that it never changes.
type Statistics struct {
	from    io.ReaderAt
	offsets map[string]int64 // of values, by name
}

// Sizes of the header and of the fixed part of a descriptor; the most names and the
// longest that are believed.
const (
	statsHeader = 24
	statsDesc   = 16
	maxStats    = 1 << 12
	maxName     = 1 << 10
)

// NewStatistics reads header and descriptors.
func NewStatistics(from io.ReaderAt) (*Statistics, error) {
	var h struct{ Flags, NameSize, Count, ID, Desc, Data uint32 }
	if err := read(from, 0, statsHeader, &h); err != nil {
		return nil, fmt.Errorf("kvm: header of the statistics: %w", err)
	}
	if h.Count > maxStats || h.NameSize == 0 || h.NameSize > maxName {
		return nil, fmt.Errorf("kvm: header of the statistics: %d of them with names of %d bytes", h.Count, h.NameSize)
	}
	s := &Statistics{from: from, offsets: make(map[string]int64, h.Count)}
	size := statsDesc + int(h.NameSize)
	all := make([]byte, size*int(h.Count))
	if _, err := io.ReadFull(io.NewSectionReader(from, int64(h.Desc), int64(len(all))), all); err != nil {
		return nil, fmt.Errorf("kvm: %d descriptors of statistics: %w", h.Count, err)
	}
	for ; len(all) > 0; all = all[size:] {
		name, _, _ := bytes.Cut(all[statsDesc:size], []byte{0})
		offset := binary.NativeEndian.Uint32(all[8:])
		s.offsets[string(name)] = int64(h.Data) + int64(offset)
	}
	return s, nil
}

// Value reads a statistic by its name, the first word of one that has several.
func (s *Statistics) Value(name string) (uint64, error) {
	offset, ok := s.offsets[name]
	if !ok {
		return 0, fmt.Errorf("kvm: this kernel does not count %q", name)
	}
	var v uint64
	if err := read(s.from, offset, 8, &v); err != nil {
		return 0, fmt.Errorf("kvm: statistic %q: %w", name, err)
	}
	return v, nil
}

// Has tells whether this kernel keeps a statistic of that name.
func (s *Statistics) Has(name string) bool {
	_, ok := s.offsets[name]
	return ok
}

func read(from io.ReaderAt, offset int64, size int, into any) error {
	b := make([]byte, size)
	if _, err := io.ReadFull(io.NewSectionReader(from, offset, int64(size)), b); err != nil {
		return err
	}
	_, err := binary.Decode(b, binary.NativeEndian, into)
	return err
}

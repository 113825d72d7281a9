package abi

// linux72 is the tree that the tables were checked against, line by line.
const linux72 = "Linux 7.2.12"

// linux cites the Linux tree that the tables were checked against.
func linux(path, symbol string) Source {
	return Source{Tree: linux72, Path: path, Symbol: symbol}
}

// lopar cites the published text of PAPR: the chapter on logical partitioning,
// by the title of a section.
func lopar(section string) Source {
	return Source{Tree: "Linux on Power Architecture Reference 2.9", Path: "LoPAR/ch_lpar_option.xml", Symbol: section}
}

// qemu cites the QEMU tree that the tables were checked against.
func qemu(path, symbol string) Source {
	return Source{Tree: "QEMU 10.0.13", Path: path, Symbol: symbol}
}

// noting returns the source with a note: what it adds, or how it differs.
func (s Source) noting(note string) Source {
	s.Note = note
	return s
}

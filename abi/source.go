package abi

// linux72 is the tree that the tables were checked against, line by line.
const linux72 = "Linux 7.2.12"

// linux cites the Linux tree that the tables were checked against.
func linux(path, symbol string) Source {
	return Source{Tree: linux72, Path: path, Symbol: symbol}
}

// noting returns the source with a note: what it adds, or how it differs.
func (s Source) noting(note string) Source {
	s.Note = note
	return s
}

package conformance

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
)

// Part is a piece of a value that is too long for one event. The value is JSON, compressed by gzip, and
// cut; its pieces come in order.
type Part struct {
	Name string `json:"name"` // the value's
	Data []byte `json:"data"`
	Last bool   `json:"last,omitempty"`
}

// partSize is how much is in a piece at most, in bytes: in an event it is longer by a third.
const partSize = 32 << 10

// valueMost bounds a value as JSON, in bytes: what is small may unpack to anything.
const valueMost = 64 << 20

// Parts cuts a value into the events that carry it.
func Parts(name string, value any) ([]Event, error) {
	var packed bytes.Buffer
	// The quickest: it is done by an emulated CPU.
	z, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if err := json.NewEncoder(z).Encode(value); err != nil {
		return nil, fmt.Errorf("pack %s: %w", name, err)
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("pack %s: %w", name, err)
	}
	var events []Event
	for last := false; !last; {
		data := packed.Next(partSize)
		last = packed.Len() == 0
		events = append(events, Event{Part: &Part{Name: name, Data: data, Last: last}})
	}
	return events, nil
}

// Whole joins parts. The zero value is ready for use.
type Whole struct{ packed map[string][]byte }

// Add takes a part, and tells whether its value is complete, which is then in value, a pointer, and
// forgotten here. The parts come from a guest: whatever they are, an error is all that comes of it.
func (w *Whole) Add(p Part, value any) (complete bool, err error) {
	if w.packed == nil {
		w.packed = map[string][]byte{}
	}
	w.packed[p.Name] = append(w.packed[p.Name], p.Data...)
	if !p.Last {
		return false, nil
	}
	z, err := gzip.NewReader(bytes.NewReader(w.packed[p.Name]))
	delete(w.packed, p.Name)
	if err == nil {
		err = json.NewDecoder(io.LimitReader(z, valueMost)).Decode(value)
	}
	if err != nil {
		return false, fmt.Errorf("unpack %s: %w", p.Name, err)
	}
	return true, nil
}

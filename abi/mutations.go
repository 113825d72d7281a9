package abi

import (
	"math/bits"
	"reflect"
	"strings"
)

// Mutation is a change of one value of a platform's tables. What an implementer does cannot
// have changed with it, so that a rule that depends on the value has to fail.
type Mutation struct {
	// Path is the value's, as [Platform.Set] takes it.
	Path string `json:"path"`
	// Was is the value of the table, Is what it is changed to; 1 and 0 stand for true and
	// false.
	Was int64 `json:"was"`
	Is  int64 `json:"is"`
}

// Mutations lists the changes of each value of the platform's tables by which it is shown that
// a run depends on it: to the next value and the one before, of a promise to its contrary, of a
// set of bits to one with a bit more and one with a bit less, and of an outcome that is an error
// to the platform's next error. Values that cannot be less are not made so.
func (p *Platform) Mutations() []Mutation {
	var out []Mutation
	idle := "" // the result of an outcome that is an error
	walk(reflect.ValueOf(p).Elem(), "", func(path string, v reflect.Value, o *Outcome) {
		was := valueOf(v)
		add := func(is int64) {
			if is != was {
				out = append(out, Mutation{path, was, is})
			}
		}
		if path == idle {
			return
		}
		field := path[strings.LastIndex(path, "/")+1:]
		promise := strings.HasPrefix(path, "rules/") && (was == 0 || was == 1)
		switch {
		case v.Kind() == reflect.Bool, promise:
			add(1 - was)
		case o != nil:
			idle = strings.TrimSuffix(path, field) + "result"
			was = p.Errno(o.Error)
			add(p.otherError(o.Error))
		case field == "reserved", field == "enable":
			add(was | 1<<bits.TrailingZeros64(^uint64(was)))
			add(was & (was - 1))
		default:
			add(was + 1)
			if was > 0 || was < 0 && v.Kind() == reflect.Uint64 || field == "result" {
				add(was - 1)
			}
		}
	})
	return out
}

// otherError is the number of the error that follows one in the platform's table, and differs
// from it; the first follows the last.
func (p *Platform) otherError(name string) int64 {
	was, after := p.Errno(name), false
	for range 2 {
		for _, e := range p.Errors {
			if after && e.Result != was {
				return e.Result
			}
			after = after || e.Name == name
		}
	}
	return was + 1
}

// Watched returns a copy of the platform that shares its tables, and that tells of each row that
// is asked for by its name: read is called with the path that begins the paths of the row's
// values, from whichever goroutine asks; of AllCalls and its likes with that of the whole table. What
// is read of the tables without those is not told.
func (p *Platform) Watched(read func(path string)) *Platform {
	w := *p
	w.read = read
	return &w
}

// AllCalls, AllFeatures and AllRegisters return whole tables.
func (p *Platform) AllCalls() []Call {
	p.tell("calls")
	return p.Calls
}

// AllFeatures is described at AllCalls.
func (p *Platform) AllFeatures() []Feature {
	p.tell("features")
	return p.Features
}

// AllRegisters is described at AllCalls.
func (p *Platform) AllRegisters() []Register {
	p.tell("registers")
	return p.Registers
}

// MainConvention is the platform's first calling convention, by which a call is made that names none.
func (p *Platform) MainConvention() Convention { return p.Convention(p.Conventions[0].Name) }

// tell tells who watches of a row.
func (p *Platform) tell(path ...string) {
	if p.read != nil {
		p.read(strings.Join(path, "/"))
	}
}

package abi

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// Number is one value of a platform that can be read and changed by its path.
type Number struct {
	// Path is built from JSON names and the names of rows:
	// "calls/KICK_CPU/number", "rules/x86-kvm/kick/wakes-waiter/want/wakes/number".
	Path  string
	Value int64
}

// Clone returns a copy that shares nothing with p.
func (p *Platform) Clone() *Platform {
	data, err := json.Marshal(p)
	if err != nil {
		panic(fmt.Sprintf("abi: clone of %s: %v", p.Name, err))
	}
	c := new(Platform)
	if err := json.Unmarshal(data, c); err != nil {
		panic(fmt.Sprintf("abi: clone of %s: %v", p.Name, err))
	}
	return c
}

// Numbers lists every number in the platform's tables, in the tables' order.
// Unsigned values above the largest int64 are listed by their two's complement.
func (p *Platform) Numbers() []Number {
	var out []Number
	walk(reflect.ValueOf(p).Elem(), "", func(path string, v reflect.Value, o *Outcome) {
		if v.Kind() != reflect.Bool && o == nil {
			out = append(out, Number{Path: path, Value: valueOf(v)})
		}
	})
	return out
}

// valueOf is a number, or 1 for true.
func valueOf(v reflect.Value) int64 {
	switch v.Kind() {
	case reflect.Bool:
		if v.Bool() {
			return 1
		}
		return 0
	case reflect.Uint64:
		return int64(v.Uint())
	}
	return v.Int()
}

// Set changes the number at path, one that Numbers or Mutations lists. At the error of an
// outcome it puts a result in its place.
func (p *Platform) Set(path string, value int64) error {
	found := false
	walk(reflect.ValueOf(p).Elem(), "", func(at string, v reflect.Value, o *Outcome) {
		if at != path {
			return
		}
		found = true
		switch v.Kind() {
		case reflect.Bool:
			v.SetBool(value != 0)
		case reflect.Uint64:
			v.SetUint(uint64(value))
		default:
			v.SetInt(value)
		}
		if o != nil {
			o.Error = ""
		}
	})
	if !found {
		return fmt.Errorf("abi: %s has no number at %q; Numbers lists what there is", p.Name, path)
	}
	return nil
}

// walk visits each 64-bit integer and each truth value under v, and the error of each outcome
// that has one: as the outcome's result and the outcome itself, which is nil for all others.
func walk(v reflect.Value, path string, visit func(string, reflect.Value, *Outcome)) {
	switch v.Kind() {
	case reflect.Uint64, reflect.Int64, reflect.Bool:
		visit(path, v, nil)
	case reflect.Struct:
		if o, ok := v.Addr().Interface().(*Outcome); ok && o.Error != "" {
			visit(join(path, "error"), v.FieldByName("Result"), o)
		}
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				walk(v.Field(i), join(path, name), visit)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			walk(v.Index(i), join(path, rowName(v.Index(i), i)), visit)
		}
	}
}

// rowName is the Name, ID or When of a row, or its position.
func rowName(row reflect.Value, i int) string {
	if row.Kind() == reflect.Struct {
		for _, key := range []string{"ID", "Mnemonic", "Name", "When"} {
			if f := row.FieldByName(key); f.IsValid() {
				if field := row.FieldByName("Field"); field.IsValid() {
					return field.String() + "." + f.String()
				}
				return f.String()
			}
		}
	}
	return fmt.Sprint(i)
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "/" + name
}

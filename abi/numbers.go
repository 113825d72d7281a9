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
	walk(reflect.ValueOf(p).Elem(), "", func(path string, v reflect.Value) {
		n := Number{Path: path}
		if v.Kind() == reflect.Uint64 {
			n.Value = int64(v.Uint())
		} else {
			n.Value = v.Int()
		}
		out = append(out, n)
	})
	return out
}

// Set changes the number at path, one that Numbers lists.
func (p *Platform) Set(path string, value int64) error {
	found := false
	walk(reflect.ValueOf(p).Elem(), "", func(at string, v reflect.Value) {
		if at != path {
			return
		}
		found = true
		if v.Kind() == reflect.Uint64 {
			v.SetUint(uint64(value))
		} else {
			v.SetInt(value)
		}
	})
	if !found {
		return fmt.Errorf("abi: %s has no number at %q; Numbers lists what there is", p.Name, path)
	}
	return nil
}

// walk visits each 64-bit integer under v.
func walk(v reflect.Value, path string, visit func(string, reflect.Value)) {
	switch v.Kind() {
	case reflect.Uint64, reflect.Int64:
		visit(path, v)
	case reflect.Struct:
		for i := range v.NumField() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			walk(v.Field(i), join(path, name), visit)
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

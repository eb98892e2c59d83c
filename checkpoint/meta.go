package checkpoint

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"
	"sync/atomic"
)

// Meta holds the key/value pairs of a GGUF file. The zero Meta, which a
// safetensors set has, is empty. Arrays and strings stay in the mapping until
// they are asked for; what the methods return are copies.
//
// A method fails with ErrNoKey when the key is absent (ask Has first when it is
// optional), with another error when the value has an unsuitable type or does
// not fit, and with fs.ErrClosed after Set.Close.
type Meta struct {
	file   string
	kv     map[string]value
	keys   []string // in file order
	closed *atomic.Bool
}

// value is one value or an array of n values of one kind.
type value struct {
	kind, elem uint32 // elem: kind of the elements of an array
	n          uint64
	raw        []byte // the values as the file has them, string lengths included
}

const (
	kindU8 = iota
	kindI8
	kindU16
	kindI16
	kindU32
	kindI32
	kindF32
	kindBool
	kindString
	kindArray
	kindU64
	kindI64
	kindF64
	kindCount
)

var kinds = [kindCount]struct {
	name  string
	bytes int
}{
	{"u8", 1}, {"i8", 1}, {"u16", 2}, {"i16", 2}, {"u32", 4}, {"i32", 4}, {"f32", 4},
	{"bool", 1}, {"string", 0}, {"array", 0}, {"u64", 8}, {"i64", 8}, {"f64", 8},
}

func (v value) String() string {
	if v.kind == kindArray {
		return fmt.Sprintf("array of %d %s", v.n, kinds[v.elem].name)
	}
	return kinds[v.kind].name
}

// Keys returns all keys in the order of the file.
func (m Meta) Keys() []string { return slices.Clone(m.keys) }

// Has reports whether the key is there.
func (m Meta) Has(key string) bool { _, ok := m.kv[key]; return ok }

// Kind describes the type of a value, such as "u32" or "array of 3 string"; ""
// when the key is absent.
func (m Meta) Kind(key string) string {
	if v, ok := m.kv[key]; ok {
		return v.String()
	}
	return ""
}

func (m Meta) get(key string) (value, error) {
	v, ok := m.kv[key]
	switch {
	case !ok:
		return v, fmt.Errorf("checkpoint: %s: key %q: %w", m.name(), clip(key), ErrNoKey)
	case m.closed != nil && m.closed.Load():
		return v, fmt.Errorf("checkpoint: %s: key %q: %w", m.name(), clip(key), fs.ErrClosed)
	}
	return v, nil
}

func (m Meta) name() string {
	if m.file == "" {
		return "metadata"
	}
	return m.file
}

func (m Meta) mismatch(key string, v value, want string) error {
	return fmt.Errorf("checkpoint: %s: key %q is %v, wanted %s", m.name(), clip(key), v, want)
}

// scalar returns the value of a key that is no array, array the opposite.
func (m Meta) scalar(key, want string) (value, error) {
	v, err := m.get(key)
	if err == nil && v.kind == kindArray {
		err = m.mismatch(key, v, want)
	}
	return v, err
}

func (m Meta) array(key, want string) (value, error) {
	v, err := m.get(key)
	if err == nil && v.kind != kindArray {
		err = m.mismatch(key, v, want)
	}
	return v, err
}

// Int returns an integer of any of the eight integer types.
func (m Meta) Int(key string) (int, error) {
	v, err := m.scalar(key, "an integer")
	if err != nil {
		return 0, err
	}
	return m.int(key, v, v.kind, 0)
}

// Ints returns an array of integers of any of the eight integer types.
func (m Meta) Ints(key string) ([]int, error) {
	v, err := m.array(key, "an array of integers")
	if err != nil {
		return nil, err
	}
	out := make([]int, v.n)
	for i := range out {
		if out[i], err = m.int(key, v, v.elem, i); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (m Meta) int(key string, v value, kind uint32, i int) (int, error) {
	n, ok := integer(v.raw, kind, i)
	if !ok {
		return 0, m.mismatch(key, v, "integers")
	}
	if kind == kindU64 && n < 0 {
		return 0, fmt.Errorf("checkpoint: %s: key %q: %d does not fit an int", m.name(), clip(key), uint64(n))
	}
	if int64(int(n)) != n {
		return 0, fmt.Errorf("checkpoint: %s: key %q: %d does not fit an int", m.name(), clip(key), n)
	}
	return int(n), nil
}

// integer decodes element i; a u64 beyond int64 comes out negative.
func integer(raw []byte, kind uint32, i int) (int64, bool) {
	switch kind {
	case kindU8:
		return int64(raw[i]), true
	case kindI8:
		return int64(int8(raw[i])), true
	case kindU16:
		return int64(binary.LittleEndian.Uint16(raw[2*i:])), true
	case kindI16:
		return int64(int16(binary.LittleEndian.Uint16(raw[2*i:]))), true
	case kindU32:
		return int64(binary.LittleEndian.Uint32(raw[4*i:])), true
	case kindI32:
		return int64(int32(binary.LittleEndian.Uint32(raw[4*i:]))), true
	case kindU64, kindI64:
		return int64(binary.LittleEndian.Uint64(raw[8*i:])), true
	}
	return 0, false
}

// Float returns an f32 (widened exactly) or f64.
func (m Meta) Float(key string) (float64, error) {
	v, err := m.scalar(key, "a float")
	if err != nil {
		return 0, err
	}
	return m.float(key, v, v.kind, 0)
}

// Floats returns an array of f32 or f64.
func (m Meta) Floats(key string) ([]float64, error) {
	v, err := m.array(key, "an array of floats")
	if err != nil {
		return nil, err
	}
	out := make([]float64, v.n)
	for i := range out {
		if out[i], err = m.float(key, v, v.elem, i); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (m Meta) float(key string, v value, kind uint32, i int) (float64, error) {
	switch kind {
	case kindF32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(v.raw[4*i:]))), nil
	case kindF64:
		return math.Float64frombits(binary.LittleEndian.Uint64(v.raw[8*i:])), nil
	}
	return 0, m.mismatch(key, v, "floats")
}

// Bool returns a bool.
func (m Meta) Bool(key string) (bool, error) {
	v, err := m.scalar(key, "a bool")
	if err != nil {
		return false, err
	}
	if v.kind != kindBool {
		return false, m.mismatch(key, v, "a bool")
	}
	return v.raw[0] == 1, nil
}

// Bools returns an array of bools.
func (m Meta) Bools(key string) ([]bool, error) {
	v, err := m.array(key, "an array of bools")
	if err != nil {
		return nil, err
	}
	if v.elem != kindBool {
		return nil, m.mismatch(key, v, "an array of bools")
	}
	out := make([]bool, v.n)
	for i := range out {
		out[i] = v.raw[i] == 1
	}
	return out, nil
}

// String returns a string as the file has it; it need not be valid UTF-8.
func (m Meta) String(key string) (string, error) {
	v, err := m.scalar(key, "a string")
	if err != nil {
		return "", err
	}
	if v.kind != kindString {
		return "", m.mismatch(key, v, "a string")
	}
	return string(v.raw[8:]), nil
}

// Strings returns an array of strings, which share one allocation.
func (m Meta) Strings(key string) ([]string, error) {
	v, err := m.array(key, "an array of strings")
	if err != nil {
		return nil, err
	}
	if v.elem != kindString {
		return nil, m.mismatch(key, v, "an array of strings")
	}
	out := make([]string, v.n)
	var all strings.Builder
	all.Grow(len(v.raw) - 8*len(out))
	for i, raw := 0, v.raw; i < len(out); i++ {
		n := binary.LittleEndian.Uint64(raw) // checked by the parser
		begin := all.Len()
		all.Write(raw[8 : 8+n])
		out[i] = all.String()[begin:]
		raw = raw[8+n:]
	}
	return out, nil
}

// Value returns a value in the Go type that WriteGGUF writes back unchanged:
// uint8 ... float64, bool, string, or a slice of one of them.
func (m Meta) Value(key string) (any, error) {
	v, err := m.get(key)
	if err != nil {
		return nil, err
	}
	array, kind := v.kind == kindArray, v.kind
	if array {
		kind = v.elem
	}
	switch kind {
	case kindString:
		if array {
			return m.Strings(key)
		}
		return m.String(key)
	case kindBool:
		if array {
			return m.Bools(key)
		}
		return m.Bool(key)
	case kindU8:
		return decode[uint8](v, array), nil
	case kindI8:
		return decode[int8](v, array), nil
	case kindU16:
		return decode[uint16](v, array), nil
	case kindI16:
		return decode[int16](v, array), nil
	case kindU32:
		return decode[uint32](v, array), nil
	case kindI32:
		return decode[int32](v, array), nil
	case kindU64:
		return decode[uint64](v, array), nil
	case kindI64:
		return decode[int64](v, array), nil
	case kindF32:
		return decode[float32](v, array), nil
	}
	return decode[float64](v, array), nil
}

func decode[T any](v value, array bool) any {
	out := make([]T, v.n)
	if _, err := binary.Decode(v.raw, binary.LittleEndian, out); err != nil {
		panic(err) // raw has the size of n values since it was parsed
	}
	if array {
		return out
	}
	return out[0]
}

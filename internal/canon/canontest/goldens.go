// Package canontest gives tests the exact vectors of testdata/numerics and the
// comparison by bits that the numerics contract asks for.
package canontest

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// Case is one golden: parameters, and operands by name.
type Case struct {
	Op     string
	Params map[string]any
	In     map[string]Array
	Out    map[string]Array
}

// Array is one stored operand, row-major.
type Array struct {
	DType string // f32, bf16, i8 or i32
	Shape []int
	raw   []byte
}

type index struct {
	Arrays []struct {
		File, DType string
		Shape       []int
		Offset      int
	}
	Cases []struct {
		Op      string
		Params  map[string]any
		In, Out map[string]int
	}
}

// Cases reads all goldens of one op. It fails the test when there are none.
func Cases(tb testing.TB, op string) []Case {
	tb.Helper()
	dir := root(tb)
	b, err := os.ReadFile(filepath.Join(dir, "index.json"))
	if err != nil {
		tb.Fatal(err)
	}
	var ix index
	if err := json.Unmarshal(b, &ix); err != nil {
		tb.Fatalf("%s/index.json: %v", dir, err)
	}
	files := map[string][]byte{}
	pick := func(names map[string]int) map[string]Array {
		m := map[string]Array{}
		for name, i := range names {
			a := ix.Arrays[i]
			if files[a.File] == nil {
				if files[a.File], err = os.ReadFile(filepath.Join(dir, a.File)); err != nil {
					tb.Fatal(err)
				}
			}
			n := map[string]int{"f32": 4, "i32": 4, "bf16": 2, "i8": 1}[a.DType]
			for _, d := range a.Shape {
				n *= d
			}
			m[name] = Array{a.DType, a.Shape, files[a.File][a.Offset:][:n]}
		}
		return m
	}
	var out []Case
	for _, c := range ix.Cases {
		if c.Op == op {
			out = append(out, Case{op, c.Params, pick(c.In), pick(c.Out)})
		}
	}
	if len(out) == 0 {
		tb.Fatalf("no goldens for %q in %s", op, dir)
	}
	return out
}

// root finds testdata/numerics above the package under test.
func root(tb testing.TB) string {
	tb.Helper()
	for up := "."; len(up) < 40; up = filepath.Join(up, "..") {
		dir := filepath.Join(up, "testdata", "numerics")
		if _, err := os.Stat(filepath.Join(dir, "index.json")); err == nil {
			return dir
		}
	}
	tb.Fatal("testdata/numerics/index.json not found above the package")
	return ""
}

// F32 returns the values of an f32 array.
func (a Array) F32() []float32 {
	y := make([]float32, len(a.raw)/4)
	for i := range y {
		y[i] = math.Float32frombits(binary.LittleEndian.Uint32(a.raw[4*i:]))
	}
	return y
}

// I32 returns the values of an i32 array.
func (a Array) I32() []int32 {
	y := make([]int32, len(a.raw)/4)
	for i := range y {
		y[i] = int32(binary.LittleEndian.Uint32(a.raw[4*i:]))
	}
	return y
}

// Int reads an integer parameter.
func (c Case) Int(name string) int { f, _ := c.Params[name].(float64); return int(f) }

// Bits reads a float parameter that is given as a hexadecimal bit pattern.
func (c Case) Bits(name string) float32 {
	s, _ := c.Params[name].(string)
	u, _ := strconv.ParseUint(s, 16, 32)
	return math.Float32frombits(uint32(u))
}

// Same reports equal bits; all NaNs are equal.
func Same(x, y float32) bool {
	return math.Float32bits(x) == math.Float32bits(y) || x != x && y != y
}

// Diff describes the first places where got differs from want, "" if nowhere.
func Diff(got, want []float32) string {
	if len(got) != len(want) {
		return fmt.Sprintf("length %d, want %d", len(got), len(want))
	}
	s, n := "", 0
	for i := range want {
		if Same(got[i], want[i]) {
			continue
		}
		if n++; n <= 5 {
			s += fmt.Sprintf("[%d] %08x (%g), want %08x (%g)\n", i,
				math.Float32bits(got[i]), got[i], math.Float32bits(want[i]), want[i])
		}
	}
	if n > 5 {
		s += fmt.Sprintf("and %d more\n", n-5)
	}
	return s
}

// Gen is the generator of the contract's worked examples (numerics.md 14).
func Gen(a, i int) float32 {
	return float32((i*7919+a*104729+13)%2048-1024) / 512
}

// Guarded returns n zero floats between guards, and a check that the guards
// still stand. The slice cannot grow into the guard behind it.
func Guarded(n int) (x []float32, intact func() bool) {
	const guard = 64
	const mark = 0x7fc0dead
	buf := make([]float32, n+2*guard)
	for i := range buf {
		if i < guard || i >= guard+n {
			buf[i] = math.Float32frombits(mark)
		}
	}
	return buf[guard : guard+n : guard+n], func() bool {
		for i := range buf {
			if (i < guard || i >= guard+n) && math.Float32bits(buf[i]) != mark {
				return false
			}
		}
		return true
	}
}

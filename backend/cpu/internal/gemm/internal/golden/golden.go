// Package golden reads the bit-exact cases of testdata/numerics for tests.
package golden

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"
)

// Case is one case of an operation.
type Case struct {
	Params map[string]int
	arrays map[string]array
	dir    string
}

type array struct {
	File   string
	DType  string
	Shape  []int
	Offset int
}

// Cases returns the cases of op. dir is the way from the test to
// testdata/numerics. No case at all fails the test.
func Cases(t *testing.T, dir, op string) []Case {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	var index struct {
		Arrays []array
		Cases  []struct {
			Op      string
			Params  json.RawMessage
			In, Out map[string]int
		}
	}
	if err := json.Unmarshal(raw, &index); err != nil {
		t.Fatal(err)
	}
	var cases []Case
	for _, c := range index.Cases {
		if c.Op != op {
			continue
		}
		g := Case{dir: dir, arrays: map[string]array{}}
		if err := json.Unmarshal(c.Params, &g.Params); err != nil {
			t.Fatal(err)
		}
		for _, m := range []map[string]int{c.In, c.Out} {
			for name, i := range m {
				g.arrays[name] = index.Arrays[i]
			}
		}
		cases = append(cases, g)
	}
	if len(cases) == 0 {
		t.Fatalf("golden: no case of %q in %s", op, dir)
	}
	return cases
}

// Bytes returns the raw little-endian bytes of an operand.
func (c Case) Bytes(t *testing.T, name string) []byte {
	t.Helper()
	a, ok := c.arrays[name]
	if !ok {
		t.Fatalf("golden: no operand %q", name)
	}
	data, err := os.ReadFile(filepath.Join(c.dir, a.File))
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]int{"f32": 4, "i32": 4, "bf16": 2, "i8": 1}[a.DType]
	for _, d := range a.Shape {
		n *= d
	}
	return data[a.Offset : a.Offset+n]
}

// Floats returns a float32 operand.
func (c Case) Floats(t *testing.T, name string) []float32 {
	t.Helper()
	b := c.Bytes(t, name)
	x := make([]float32, len(b)/4)
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return x
}

package interop

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"samebit/tensor/tensortest"
)

// file is a NumPy file with the given header and body.
func file(header string, body []byte) []byte {
	return append(fmt.Appendf(nil, "\x93NUMPY\x01\x00%c%c%s", len(header)%256, len(header)/256, header), body...)
}

func TestNpyThereAndBack(t *testing.T) {
	x, _ := random(t, 6, 10)
	for _, dim := range [][]int{{60}, {6, 10}, {1, 60}, {60, 1}, {3, 4, 5}, {2, 3, 2, 5}} {
		y := x.Reshape(dim...)
		var b bytes.Buffer
		if err := WriteNpy(&b, y); err != nil {
			t.Errorf("%v: %v", dim, err)
			continue
		}
		b.WriteString("next")
		z, err := ReadNpy(&b)
		if err != nil {
			t.Errorf("%v: %v", dim, err)
			continue
		}
		want, _ := y.F32()
		got, _ := z.F32()
		if diff := tensortest.DiffBits(want, got); diff != "" || !slices.Equal(shape(z), dim) {
			t.Errorf("%v came back as %v (seed %d)\n%s", y, z, seed, diff)
		}
		if b.String() != "next" {
			t.Errorf("%v: %q is left, want what follows the file", dim, b.String())
		}
	}
	if err := WriteNpy(io.Discard, x.Cols(1, 3)); !errors.Is(err, ErrGaps) {
		t.Errorf("a column slice: %v", err)
	}
}

// What numpy.save writes: a header of 118 bytes that ends in a newline.
func TestReadNpyOfNumpy(t *testing.T) {
	h := "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"
	h += strings.Repeat(" ", 117-len(h)) + "\n"
	x, err := ReadNpy(bytes.NewReader(file(h, []byte("\x00\x00\x80\x3f\x00\x00\x00\x40\x00\x00\x40\x40\x00\x00\x80\x40\x00\x00\xa0\x40\x00\x00\xc0\x40"))))
	if err != nil {
		t.Fatal(err)
	}
	if v, _ := x.F32(); !slices.Equal(v, []float32{1, 2, 3, 4, 5, 6}) || x.String() != "F32[2 3]" {
		t.Errorf("read %v %v", x, v)
	}
}

func TestReadNpyRefuses(t *testing.T) {
	body := make([]byte, 24)
	const head = "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }\n"
	for _, tt := range []struct {
		name string
		file []byte
		word string
	}{
		{"nothing", nil, "magic"},
		{"other file", []byte("PK\x03\x04 something"), "begins with"},
		{"version 2", []byte("\x93NUMPY\x02\x00\x00\x00\x00\x00"), "1.0"},
		{"header cut off", file(head, body)[:30], "header"},
		{"big-endian", file(fmt.Sprintf(head, ">f4", "False", "(2, 3)"), body), ">f4"},
		{"float64", file(fmt.Sprintf(head, "<f8", "False", "(3,)"), body), "<f8"},
		{"Fortran order", file(fmt.Sprintf(head, "<f4", "True", "(2, 3)"), body), "fortran"},
		{"no axes", file(fmt.Sprintf(head, "<f4", "False", "()"), body), "axis 0"},
		{"no elements", file(fmt.Sprintf(head, "<f4", "False", "(0, 3)"), body), "axis 0"},
		{"negative", file(fmt.Sprintf(head, "<f4", "False", "(-2, -3)"), body), "axis 0"},
		{"five axes", file(fmt.Sprintf(head, "<f4", "False", "(1, 1, 1, 2, 3)"), body), "5 axes"},
		{"wraps to 0", file(fmt.Sprintf(head, "<f4", "False", "(4294967296, 4294967296)"), body), "axis 0"},
		{"too large", file(fmt.Sprintf(head, "<f4", "False", "(65536, 65536)"), body), "axis 1"},
		{"no shape", file("{'descr': '<f4', 'fortran_order': False}", body), "axis 0"},
		{"cut off", file(fmt.Sprintf(head, "<f4", "False", "(2, 3)"), body[:23]), "has 23"},
		{"promises half a gigabyte", file(fmt.Sprintf(head, "<f4", "False", "(100000000,)"), body), "has 24"},
	} {
		if x, err := ReadNpy(bytes.NewReader(tt.file)); err == nil || x.Valid() || !strings.Contains(err.Error(), tt.word) {
			t.Errorf("%s: %v, error %v, want one about %q", tt.name, x, err, tt.word)
		}
	}
}

// full is a writer whose disk is full after n bytes.
type full struct{ n int }

var errFull = errors.New("disk full")

func (f *full) Write(p []byte) (int, error) {
	if f.n -= len(p); f.n < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func TestWriteNpyReportsErrors(t *testing.T) {
	x, _ := random(t, 50, 50)
	for _, n := range []int{0, 7, 90, 5000, 10000} {
		if err := WriteNpy(&full{n}, x); !errors.Is(err, errFull) {
			t.Errorf("disk full after %d bytes: %v", n, err)
		}
	}
}

func FuzzReadNpy(f *testing.F) {
	f.Add(file("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", make([]byte, 24)))
	f.Add(file("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'shape': (7) }\n", make([]byte, 28)))
	f.Fuzz(func(t *testing.T, p []byte) {
		x, err := ReadNpy(bytes.NewReader(p))
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := WriteNpy(&b, x); err != nil {
			t.Fatal(err)
		}
		y, err := ReadNpy(&b)
		if err != nil {
			t.Fatal(err)
		}
		v, _ := x.F32()
		w, _ := y.F32()
		if diff := tensortest.DiffBits(v, w); diff != "" || x.String() != y.String() {
			t.Errorf("%v came back as %v\n%s", x, y, diff)
		}
	})
}

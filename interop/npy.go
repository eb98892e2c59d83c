package interop

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	gtensor "gorgonia.org/tensor"

	"samebit/tensor"
)

// WriteNpy writes t as a NumPy file (version 1.0, little-endian float32, C
// order) by way of gorgonia. What [ToGorgonia] refuses is refused here.
func WriteNpy(w io.Writer, t tensor.Tensor) error {
	d, err := ToGorgonia(t)
	if err != nil {
		return fmt.Errorf("interop: WriteNpy: %w", err)
	}
	// Gorgonia writes value by value and does not look at every error.
	b := bufio.NewWriter(w)
	if err := errors.Join(d.WriteNpy(b), b.Flush()); err != nil {
		return fmt.Errorf("interop: WriteNpy of %v: %w", t, err)
	}
	return nil
}

// ReadNpy reads a NumPy file of version 1.0 with little-endian float32 in C
// order, one to four axes and at least one element, by way of gorgonia. It reads
// no further than the last element and allocates no more than the file fills.
func ReadNpy(r io.Reader) (tensor.Tensor, error) {
	fail := func(err error) (tensor.Tensor, error) {
		return tensor.Tensor{}, fmt.Errorf("interop: ReadNpy: %w", err)
	}
	head := make([]byte, 10)
	if _, err := io.ReadFull(r, head); err != nil {
		return fail(fmt.Errorf("magic number: %w", err))
	}
	if string(head[:8]) != "\x93NUMPY\x01\x00" {
		return fail(fmt.Errorf("begins with %q, want a NumPy file of version 1.0", head[:8]))
	}
	text := make([]byte, binary.LittleEndian.Uint16(head[8:]))
	if _, err := io.ReadFull(r, text); err != nil {
		return fail(fmt.Errorf("header of %d bytes: %w", len(text), err))
	}
	dim, err := npyShape(text)
	if err != nil {
		return fail(err)
	}
	size := int64(4 * length(dim))
	body, err := io.ReadAll(io.LimitReader(r, size))
	if err != nil {
		return fail(err)
	}
	if int64(len(body)) != size {
		return fail(fmt.Errorf("shape %v needs %d bytes, the file has %d: is it cut off?", dim, size, len(body)))
	}
	d := new(gtensor.Dense)
	if err := d.ReadNpy(io.MultiReader(bytes.NewReader(head), bytes.NewReader(text), bytes.NewReader(body))); err != nil {
		return fail(err)
	}
	if !slices.Equal(dim, d.Shape()) {
		return fail(fmt.Errorf("shape %v was read as %v", dim, d.Shape()))
	}
	return FromGorgonia(d)
}

// The same patterns as gorgonia's, so that both look at the same text.
var (
	npyType  = regexp.MustCompile(`'descr':\s*'([^']*)'`)
	npyOrder = regexp.MustCompile(`'fortran_order':\s*(False|True)`)
	npyDims  = regexp.MustCompile(`'shape':\s*\(([^\(]*)\)`)
)

// npyShape checks a header more strictly than gorgonia, which reads big-endian
// numbers as if they were little-endian and believes any shape.
func npyShape(text []byte) ([]int, error) {
	field := func(re *regexp.Regexp) string {
		if m := re.FindSubmatch(text); m != nil {
			return string(m[1])
		}
		return ""
	}
	if s := field(npyType); s != "<f4" {
		return nil, fmt.Errorf("type %q, want \"<f4\": convert with astype('<f4')", s)
	}
	if s := field(npyOrder); s != "False" {
		return nil, fmt.Errorf("fortran_order is %q, want False: convert with ascontiguousarray", s)
	}
	list := strings.Split(strings.TrimSuffix(strings.TrimSpace(field(npyDims)), ","), ",")
	if len(list) > tensor.MaxDims {
		return nil, fmt.Errorf("%d axes, at most %d go over: reshape it first", len(list), tensor.MaxDims)
	}
	var dim []int
	for i, s := range list {
		n, err := strconv.Atoi(strings.TrimSpace(s))
		if err != nil || n < 1 || n > math.MaxInt32/4/max(length(dim), 1) {
			return nil, fmt.Errorf("axis %d of %d has length %q, want numbers from 1 with a product below 2^29", i, len(list), s)
		}
		dim = append(dim, n)
	}
	return dim, nil
}

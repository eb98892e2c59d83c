package tensortest

import (
	"fmt"
	"math"
	"unsafe"

	"samebit/tensor"
)

// Guarded lays out float32 rows between NaN canaries: before the first row,
// between rows and after the last. A kernel that writes outside its rows changes
// a canary, one that reads there spreads NaN.
type Guarded struct {
	dim   []int
	pad   int
	lead  int
	words []uint32
}

// NewGuarded makes the layout of a shape with one to three axes, pad canaries
// between rows (of the last axis) and, for three axes, pad+1 more between the
// heads' rows. The rows hold NaN until they are written.
func NewGuarded(pad int, dim ...int) *Guarded {
	g := &Guarded{dim: dim, pad: pad, lead: 3 + pad}
	g.words = make([]uint32, g.lead+g.span()+19)
	for i := range g.words {
		g.words[i] = canary(i)
	}
	return g
}

// canary is a quiet NaN that says where it lies.
func canary(i int) uint32 { return 0x7fc00001 + uint32(i)&0xffff }

// rowStride is the distance of indices of the first axis.
func (g *Guarded) rowStride() int {
	switch len(g.dim) {
	case 1:
		return 1
	case 2:
		return g.dim[1] + g.pad
	}
	n := g.dim[1] * (g.dim[2] + g.pad)
	if g.pad > 0 {
		n += g.pad + 1
	}
	return n
}

func (g *Guarded) span() int {
	if len(g.dim) == 1 {
		return g.dim[0]
	}
	return g.dim[0] * g.rowStride()
}

// Bytes is the size of the buffer that the layout needs.
func (g *Guarded) Bytes() int { return 4 * len(g.words) }

// Raw is the layout's memory, to be written to a buffer or read back from one.
func (g *Guarded) Raw() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(g.words))), 4*len(g.words))
}

// On views the rows in a buffer of Bytes bytes.
func (g *Guarded) On(b tensor.Buffer) (tensor.Tensor, error) {
	if len(g.dim) == 1 {
		return tensor.New(b, 4*g.lead, tensor.F32, g.dim[0])
	}
	t, err := tensor.New(b, 4*g.lead, tensor.F32, g.dim[0], g.rowStride())
	if err != nil {
		return t, err
	}
	if len(g.dim) == 2 {
		return t.Cols(0, g.dim[1]), nil
	}
	return t.Cols(0, g.dim[1]*(g.dim[2]+g.pad)).Heads(g.dim[1], g.dim[2]+g.pad).Cols(0, g.dim[2]), nil
}

// each calls f with the place of every value, in order.
func (g *Guarded) each(f func(i, at int)) {
	d := [3]int{1, 1, 1}
	copy(d[3-len(g.dim):], g.dim)
	stride, head := 0, 0
	if len(g.dim) > 1 {
		stride = g.rowStride()
	}
	if len(g.dim) == 3 {
		head = g.dim[2] + g.pad
	} else {
		d[0], d[1] = d[1], 1
	}
	i := 0
	for r := range d[0] {
		for h := range d[1] {
			for c := range d[2] {
				f(i, g.lead+r*stride+h*head+c)
				i++
			}
		}
	}
}

// Set writes the values, dense and row-major.
func (g *Guarded) Set(v []float32) *Guarded {
	g.each(func(i, at int) { g.words[at] = math.Float32bits(v[i]) })
	return g
}

// Values returns the values, dense and row-major.
func (g *Guarded) Values() []float32 {
	n := 1
	for _, d := range g.dim {
		n *= d
	}
	v := make([]float32, n)
	g.each(func(i, at int) { v[i] = math.Float32frombits(g.words[at]) })
	return v
}

// Check returns "" if every canary is as it was, else where the first lies that
// is not.
func (g *Guarded) Check() string {
	mine := make([]bool, len(g.words))
	g.each(func(_, at int) { mine[at] = true })
	for i, w := range g.words {
		if !mine[i] && w != canary(i) {
			return fmt.Sprintf("shape %v, stride %d: the canary %d floats after the first value was overwritten with %08x (%v)",
				g.dim, g.rowStride(), i-g.lead, w, math.Float32frombits(w))
		}
	}
	return ""
}

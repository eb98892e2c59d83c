package rclc

import (
	"context"
	"fmt"
	"math"
	"slices"

	"samebit/backend"
	"samebit/nn"
	"samebit/state"
	"samebit/tensor"
)

// gauge takes the attention weights of a pass, layer by layer in blocks of rows, and
// sums them over the rows. It holds sums of one layer at a time.
type gauge struct {
	t      int // positions [0, t) count
	rows   int // of the pass
	groups int // vectors of sums: key heads
	square bool
	layer  func(sum, square [][]float32) // takes the sums of a layer, each [t]; they are its own until the next

	layers int // that came
	mem    tensor.Buffer
	sums   tensor.Tensor // [groups, t]
	sq     tensor.Tensor // the same, invalid without square
	zero   []float32     // some, for clear
	host   []float32     // where the device's memory is not this process's
	views  [2][][]float32
}

// open takes the gauge's memory from a device.
func (g *gauge) open(dev backend.Device) error {
	n := 1
	if g.square {
		n = 2
	}
	var err error
	if g.mem, err = dev.Alloc(4 * n * g.groups * g.t); err != nil {
		return err
	}
	if g.sums, err = tensor.New(g.mem, 0, tensor.F32, g.groups, g.t); err != nil {
		return err
	}
	if g.square {
		if g.sq, err = tensor.New(g.mem, 4*g.groups*g.t, tensor.F32, g.groups, g.t); err != nil {
			return err
		}
	}
	g.zero = make([]float32, min(g.groups*g.t, 1<<16))
	return nil
}

// clear sets all sums to +0.
func (g *gauge) clear(s backend.Stream) {
	for _, v := range []tensor.Tensor{g.sums, g.sq} {
		if !v.Valid() {
			continue
		}
		n := v.Len()
		v = v.Reshape(n)
		for at := 0; at < n; at += len(g.zero) {
			k := min(len(g.zero), n-at)
			s.Write(v.Rows(at, at+k), tensor.AsBytes(g.zero[:k]))
		}
	}
}

func (g *gauge) close(dev backend.Device) {
	if g.mem != nil {
		dev.Free(g.mem)
		g.mem = nil
	}
}

// take adds a block of weights [n, Hq, S] of rows from first on.
func (g *gauge) take(s backend.Stream, first int, w tensor.Tensor) {
	if first == 0 {
		g.clear(s)
	}
	s.Moments(g.sums, g.sq, w.Cols(0, g.t))
	if first+w.Dim(0) < g.rows {
		return
	}
	g.layers++
	if s.Err() != nil {
		return
	}
	sum, square, ok := g.read(s)
	if ok {
		g.layer(sum, square)
	}
}

// read returns the sums in this process's memory.
func (g *gauge) read(s backend.Stream) (sum, square [][]float32, ok bool) {
	vectors := func(k int, t tensor.Tensor) [][]float32 {
		v, here := t.F32()
		if !here {
			v = g.host[k*g.groups*g.t:][:g.groups*g.t]
			s.Read(tensor.AsBytes(v), t)
		}
		l := g.views[k][:0]
		for i := range g.groups {
			l = append(l, v[i*g.t:(i+1)*g.t])
		}
		g.views[k] = l
		return l
	}
	if _, here := g.sums.F32(); !here && g.host == nil {
		g.host = make([]float32, 2*g.groups*g.t)
	}
	sum = vectors(0, g.sums)
	if g.square {
		square = vectors(1, g.sq)
	}
	return sum, square, s.Sync() == nil
}

// capture runs rows after the first of the sender's, on a private sequence that
// shares the sender's memory, and shows the weights of every full layer to g.
func (s *Sender) capture(ctx context.Context, at int, rows []state.Row, g *gauge) error {
	m := s.Model
	chunk := m.chunk
	if chunk == 0 {
		chunk = 512
	}
	r, stream, err := m.runner(ctx, max(chunk, len(rows)))
	if err != nil {
		return err
	}
	defer stream.Close()
	defer r.Close()
	if err := s.resume(ctx, r, at); err != nil {
		return err
	}
	dev := m.pool.Device()
	if err := g.open(dev); err != nil {
		return fmt.Errorf("rclc: sums of %d positions: %w", g.t, err)
	}
	defer g.close(dev)
	r.Ctx().Weights = func(c *nn.Ctx, _, first int, w tensor.Tensor) { g.take(c.Stream, first, w) }
	if err := r.AppendHidden(ctx, rows, func(int, []float32) {}); err != nil {
		return err
	}
	if n := m.fullLayers(); g.layers != n {
		return fmt.Errorf("rclc: %d of %d full attention layers showed their weights: this is a bug", g.layers, n)
	}
	return nil
}

// resume makes r the sequence of the sender's first n rows: by what the snapshot
// shares if its kinds can be cut, else by running them.
func (s *Sender) resume(ctx context.Context, r *nn.Runner, n int) error {
	if n == s.Len() {
		return r.Resume(s.Rows, s.Snap)
	}
	if n == 0 {
		return nil
	}
	if cut, ok := state.Cut(s.Snap, n); ok {
		defer cut.Release()
		return r.Resume(s.Rows[:n], cut)
	}
	return r.AppendHidden(ctx, s.Rows[:n], func(int, []float32) {})
}

// fullLayers is the number of layers that score.
func (m *Model) fullLayers() int {
	n := 0
	for _, f := range m.full {
		if f {
			n++
		}
	}
	return n
}

// max7 writes the largest of the up to seven neighbours of each position. Values are
// not negative, so their bits are in their order; NaN wins.
func max7(dst, x []float32) {
	if len(x) < backend.MomentWidth {
		for p := range dst {
			dst[p] = slices.Max(x[max(0, p-3):min(len(x), p+4)])
		}
		return
	}
	// Of the four from each position on, as pairs of pairs; then of two fours.
	n := len(x)
	dst = dst[:n]
	bits := func(p int) uint32 { return math.Float32bits(x[p]) }
	a, b := max(bits(0), bits(1)), max(bits(1), bits(2))
	for p := range n - 3 {
		c := max(bits(p+2), bits(p+3))
		dst[p] = math.Float32frombits(max(a, c))
		a, b = b, c
	}
	dst[n-3] = math.Float32frombits(max(a, bits(n-1)))
	dst[n-2] = math.Float32frombits(b)
	dst[n-1] = x[n-1]
	for p := n - 1; p > 0; p-- {
		dst[p] = math.Float32frombits(max(math.Float32bits(dst[p]), math.Float32bits(dst[max(p-3, 0)])))
	}
}

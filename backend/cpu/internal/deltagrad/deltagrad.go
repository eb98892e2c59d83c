// Package deltagrad computes the gradient of the gated delta rule of one head over
// one sequence (docs/numerics.md 10) with row kernels: the rows run backwards, the
// states in between are formed again from one in every 32. Every instruction set
// gives the same bits.
package deltagrad

//go:generate go -C ../../../../internal/gen run ./deltagrad -pkg deltagrad -out ../../backend/cpu/internal/deltagrad/deltagrad_avx2_amd64.s -stubs ../../backend/cpu/internal/deltagrad/deltagrad_avx2_amd64.go
//go:generate go -C ../../../../internal/gen run ./deltagrad -avx512 -pkg deltagrad -out ../../backend/cpu/internal/deltagrad/deltagrad_avx512_amd64.s -stubs ../../backend/cpu/internal/deltagrad/deltagrad_avx512_amd64.go

import (
	"samebit/backend/cpu/internal/gemm/blas1"
	"samebit/backend/cpu/internal/isa"
	"samebit/backend/cpu/internal/vec"
)

const (
	kb    = 128 // the block of a DOT
	every = 32  // rows between kept states
)

// Kernels are those of one instruction set.
type Kernels struct {
	set    isa.Set
	vec    *vec.Kernels
	strips []strip // widest first; none where rows are done one by one
}

// strip are the loops over all rows of a strip of columns: strides in bytes, at most
// 128 rows for the sums.
type strip struct {
	cols   int
	dots   func(total, m *float32, stride int, x *float32, rows int) // total[j] += Σ FMA(x[r], m[r][j], acc)
	pairs  func(total, a, b *float32, stride int, rows int)          // total[j] += Σ FMA(a[r][j], b[r][j], acc)
	update func(m *float32, stride int, x, y *float32, rows int)     // m[r][j] = FMA(x[r], y[j], m[r][j])
}

// For returns the kernels of an available set.
func For(s isa.Set) *Kernels { return &Kernels{s, vec.For(s), native(s)} }

// Rows are the rows of one head: row t lies at V[t·Stride:].
type Rows struct {
	V      []float32
	Stride int
}

func (r Rows) at(t, n int) []float32 { return r.V[t*r.Stride:][:n] }

// Head is the work of one value head over T rows. Start is the state before the
// first [Dk][Dv]. The gradients DQ to DBeta are added to.
type Head struct {
	T, Dk, Dv               int
	Start                   []float32
	Q, K, V, G, Beta, DY    Rows
	DQ, DK, DV, DG, DBeta   Rows
	kept                    []float32 // every 32nd state
	state                   []float32 // [Dk][Dv]
	hist                    []float32 // [every+1][Dv][Dk]: states of the rows under way, turned
	d, off                  []float32 // [every][Dv]
	ds, turned              []float32 // gradient of the state, [Dk][Dv] and [Dv][Dk]
	total, acc, a, b, dd, u []float32
}

// Scratch is the number of floats that Run needs for t rows.
func Scratch(t, dk, dv int) int {
	n := dk * dv
	return (t+every-1)/every*n + n + (every+1)*n + 2*every*dv + 2*n + 6*max(dk, dv) + 16*12
}

func (h *Head) carve(tmp []float32) {
	cut := func(n int) []float32 {
		v := tmp[:n:n]
		tmp = tmp[(n+15)&^15:]
		return v
	}
	n, most := h.Dk*h.Dv, max(h.Dk, h.Dv)
	h.kept, h.state, h.hist = cut((h.T+every-1)/every*n), cut(n), cut((every+1)*n)
	h.d, h.off, h.ds, h.turned = cut(every*h.Dv), cut(every*h.Dv), cut(n), cut(n)
	for _, v := range []*[]float32{&h.total, &h.acc, &h.a, &h.b, &h.dd, &h.u} {
		*v = cut(most)
	}
}

// Run adds the gradients of a head. tmp has Scratch(T, Dk, Dv) floats.
func (k *Kernels) Run(h *Head, tmp []float32) {
	h.carve(tmp)
	n := h.Dk * h.Dv
	copy(h.state, h.Start[:n])
	for t := range h.T {
		if t%every == 0 {
			copy(h.kept[t/every*n:][:n], h.state)
		}
		k.forward(h, t, -1)
	}
	clear(h.ds)
	clear(h.turned)
	for first := (h.T - 1) / every * every; first >= 0; first -= every {
		copy(h.state, h.kept[first/every*n:][:n])
		for i := range h.Dk {
			for j := range h.Dv {
				h.hist[j*h.Dk+i] = h.state[i*h.Dv+j]
			}
		}
		last := min(first+every, h.T)
		for t := first; t < last; t++ {
			k.forward(h, t, t-first)
		}
		for t := last - 1; t >= first; t-- {
			k.backward(h, t, t-first)
		}
	}
}

// each calls wide with the columns of n that a strip covers, and rest with those
// left over.
func (k *Kernels) each(n int, wide func(s *strip, c int), rest func(c int)) {
	c := 0
	for i := range k.strips {
		for s := &k.strips[i]; n-c >= s.cols; c += s.cols {
			wide(s, c)
		}
	}
	if c < n {
		rest(c)
	}
}

// dot writes total[i] = DOT over the rows r of (x[r], m[r][i]).
func (k *Kernels) dot(total, acc, x, m []float32) {
	n := len(total)
	clear(total)
	for b := 0; b < len(x); b += kb {
		rows := min(kb, len(x)-b)
		k.each(n, func(s *strip, c int) {
			s.dots(&total[c], &m[b*n+c], 4*n, &x[b], rows)
		}, func(c int) {
			a := acc[:n-c]
			clear(a)
			for r := b; r < b+rows; r++ {
				k.vec.FMAScalar(a, x[r], m[r*n+c:(r+1)*n])
			}
			k.vec.Add(total[c:], total[c:], a)
		})
	}
}

// pairs writes total[i] = DOT over the rows r of (a[r][i], b[r][i]).
func (k *Kernels) pairs(total, acc, a, b []float32) {
	n := len(total)
	all := len(a) / n
	clear(total)
	for r0 := 0; r0 < all; r0 += kb {
		rows := min(kb, all-r0)
		k.each(n, func(s *strip, c int) {
			s.pairs(&total[c], &a[r0*n+c], &b[r0*n+c], 4*n, rows)
		}, func(c int) {
			t := acc[:n-c]
			clear(t)
			for r := r0; r < r0+rows; r++ {
				k.vec.FMA(t, a[r*n+c:(r+1)*n], b[r*n+c:(r+1)*n])
			}
			k.vec.Add(total[c:], total[c:], t)
		})
	}
}

// Update sets m[r][i] = FMA(x[r], y[i], m[r][i]), one rounding: m has len(x) rows of
// len(y).
func (k *Kernels) Update(m, x, y []float32) {
	if len(x) == 0 {
		return
	}
	n := len(y)
	k.each(n, func(s *strip, c int) {
		s.update(&m[c], 4*n, &x[0], &y[c], len(x))
	}, func(c int) {
		for r := range x {
			k.vec.FMAScalar(m[r*n+c:(r+1)*n], x[r], y[c:])
		}
	})
}

// forward makes the state after row t, and with slot >= 0 remembers it.
func (k *Kernels) forward(h *Head, t, slot int) {
	v, dv := k.vec, h.Dv
	key, g := h.K.at(t, h.Dk), h.G.at(t, 1)[0]
	v.Scale(h.state, h.state, g)
	d, off := h.a[:dv], h.b[:dv]
	if slot >= 0 {
		d, off = h.d[slot*dv:][:dv], h.off[slot*dv:][:dv]
	}
	k.dot(h.total[:dv], h.acc, key, h.state)
	v.Sub(off, h.V.at(t, dv), h.total[:dv])
	v.Scale(d, off, h.Beta.at(t, 1)[0])
	k.Update(h.state, key, d)
	if slot < 0 {
		return
	}
	n := h.Dk * dv
	past, next := h.hist[slot*n:][:n], h.hist[(slot+1)*n:][:n]
	v.Scale(next, past, g)
	k.Update(next, d, key)
}

// backward takes the gradient of the state after row t to that before it.
func (k *Kernels) backward(h *Head, t, slot int) {
	v, dk, dv := k.vec, h.Dk, h.Dv
	n := dk * dv
	past, next := h.hist[slot*n:][:n], h.hist[(slot+1)*n:][:n]
	d, off := h.d[slot*dv:][:dv], h.off[slot*dv:][:dv]
	q, key, dy, g := h.Q.at(t, dk), h.K.at(t, dk), h.DY.at(t, dv), h.G.at(t, 1)[0]

	k.dot(h.total[:dk], h.acc, dy, next)
	dq := h.DQ.at(t, dk)
	v.Add(dq, dq, h.total[:dk])
	k.Update(h.ds, q, dy)
	k.Update(h.turned, dy, q)
	dd, u := h.dd[:dv], h.u[:dv]
	k.dot(dd, h.acc, key, h.ds)
	v.Scale(u, dd, h.Beta.at(t, 1)[0])
	dvr := h.DV.at(t, dv)
	v.Add(dvr, dvr, u)
	h.DBeta.at(t, 1)[0] += blas1.Dot(k.set, dd, off)

	e, f := h.a[:dk], h.b[:dk]
	k.dot(e, h.acc, d, h.turned)
	v.Scale(next, past, g) // the decayed state; next is no longer needed
	k.dot(f, h.acc, u, next)
	v.Sub(e, e, f)
	dkr := h.DK.at(t, dk)
	v.Add(dkr, dkr, e)

	v.Scale(e, key, -1)
	k.Update(h.ds, e, u)
	k.Update(h.turned, u, e)
	slope := h.total[:dk]
	k.pairs(slope, h.acc, h.turned, past)
	h.DG.at(t, 1)[0] += v.Sum(slope)
	v.Scale(h.ds, h.ds, g)
	v.Scale(h.turned, h.turned, g)
}

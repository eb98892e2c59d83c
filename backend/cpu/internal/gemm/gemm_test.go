package gemm

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"samebit/backend/cpu/internal/isa"
	"samebit/backend/cpu/internal/panel"
	"samebit/internal/canon"
)

var dtypes = []DType{F32, BF16, F16}

// dot is the contract's DOT, written as it stands there.
func dot(x, y []float32) float32 {
	var total float32
	for b := 0; b < len(x); b += 128 {
		var acc float32
		for k := b; k < min(b+128, len(x)); k++ {
			acc = canon.FMA32(x[k], y[k], acc)
		}
		total += acc
	}
	return total
}

func same(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || (a != a && b != b)
}

// aligned returns n bytes on a 64-byte boundary.
func aligned(n int) []byte {
	b := make([]byte, n+64)
	return b[-uintptr(unsafe.Pointer(&b[0]))&63:][:n:n]
}

// matrix is a weight matrix of rows x k in a file's form and in float32.
type matrix struct {
	dt      DType
	rows, k int
	stride  int // bytes
	raw     []byte
	w       []float32 // [rows][k]
}

// randomMatrix mixes normal weights with subnormals, signed zeros and, where
// wild, infinities and NaN.
func randomMatrix(r *rand.Rand, dt DType, rows, k int, wild bool) *matrix {
	size := 2
	if dt == F32 {
		size = 4
	}
	m := &matrix{dt: dt, rows: rows, k: k, stride: k*size + size, w: make([]float32, rows*k)}
	m.raw = make([]byte, rows*m.stride)
	for i := range m.w {
		var bits uint32
		v := float32(r.NormFloat64())
		switch c := r.IntN(40); {
		case c == 0:
			v = math.Float32frombits(r.Uint32() & 0x807fffff)
		case c == 1:
			v = float32(math.Copysign(0, -1))
		case c == 2 && wild:
			v = math.Float32frombits(r.Uint32())
		}
		switch dt {
		case F32:
			bits = math.Float32bits(v)
			m.w[i] = v
		case BF16:
			bits = math.Float32bits(v) >> 16
			m.w[i] = math.Float32frombits(bits << 16)
		case F16:
			bits = r.Uint32() & 0xffff
			if !wild && bits>>10&31 == 31 {
				bits &^= 1 << 10
			}
			m.w[i] = f16(uint16(bits))
		}
		at := i/k*m.stride + i%k*size
		for b := range size {
			m.raw[at+b] = byte(bits >> (8 * b))
		}
	}
	return m
}

func (m *matrix) pack(cod *panel.Codec) []byte {
	size := cod.Bytes(m.k)
	out := aligned(panel.Count(m.rows) * size)
	for i := range out {
		out[i] = 0xa5
	}
	for p := range panel.Count(m.rows) {
		cod.Pack(out[p*size:(p+1)*size], m.raw[p*width*m.stride:], m.stride, min(width, m.rows-p*width), m.k)
	}
	return out
}

func random(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
		switch r.IntN(50) {
		case 0:
			x[i] = math.Float32frombits(r.Uint32() & 0x80ffffff)
		case 1:
			x[i] = float32(math.Copysign(0, -1))
		}
	}
	return x
}

// guard returns n floats with NaN on both sides, at an odd offset.
func guard(n int) (all, mid []float32) {
	all = make([]float32, n+65)
	for i := range all {
		all[i] = float32(math.NaN())
	}
	return all, all[33 : 33+n : 33+n]
}

func checkGuard(t *testing.T, all []float32, n int) {
	t.Helper()
	for i, v := range all {
		if (i < 33 || i >= 33+n) && v == v {
			t.Fatalf("wrote outside: element %d of [0,%d)", i-33, n)
		}
	}
}

func eachSet(t *testing.T, f func(t *testing.T, s isa.Set)) {
	for _, s := range isa.Available() {
		t.Run(s.String(), func(t *testing.T) { f(t, s) })
	}
}

func TestPackRowExpand(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, dt := range dtypes {
		for _, k := range []int{1, 2, 7, 15, 16, 17, 33, 127, 128, 129, 300} {
			for _, rows := range []int{1, 31, 32, 65} {
				m := randomMatrix(r, dt, rows, k, true)
				ref := Codec(isa.Generic, dt)
				want := m.pack(&ref)
				for _, s := range isa.Available() {
					cod := Codec(s, dt)
					got := m.pack(&cod)
					if string(got) != string(want) {
						t.Fatalf("%v %v: panels of %dx%d differ from generic", s, dt, rows, k)
					}
					row := make([]float32, k)
					for i := range rows {
						cod.Row(row, got[i/width*cod.Bytes(k):], i%width, k)
						for j := range row {
							if !same(row[j], m.w[i*k+j]) {
								t.Fatalf("%v %v %dx%d: weight [%d,%d] = %x, want %x", s, dt, rows, k, i, j, row[j], m.w[i*k+j])
							}
						}
					}
					if cod.Expand == nil {
						continue
					}
					for k0 := 0; k0 < k; k0 += kb {
						n := min(kb, k-k0)
						all, out := guard(n * width)
						for p := range panel.Count(rows) {
							cod.Expand(out, got[p*cod.Bytes(k):(p+1)*cod.Bytes(k)], k, k0, n)
							for i, v := range out {
								want := float32(0)
								if o := p*width + i%width; o < rows {
									want = m.w[o*k+k0+i/width]
								}
								if !same(v, want) {
									t.Fatalf("%v %v %dx%d: expanded [%d] of panel %d = %x, want %x", s, dt, rows, k, i, p, v, want)
								}
							}
						}
						checkGuard(t, all, n*width)
					}
				}
			}
		}
	}
}

func TestPackPanel(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 1))
	for _, s := range isa.Available() {
		for _, k := range []int{0, 1, 15, 16, 17, 130} {
			for _, rows := range []int{1, 31, 32} {
				for _, trans := range []bool{false, true} {
					ld := max(k, rows) + 3
					src := random(r, ld*max(k, rows)+1)
					dst := floats(aligned(k * width * 4))
					PackPanel(s, dst, src, ld, trans, rows, k)
					for i := range k {
						for l := range width {
							var want float32
							if l < rows {
								want = src[l*ld+i]
								if trans {
									want = src[i*ld+l]
								}
							}
							if !same(dst[i*width+l], want) {
								t.Fatalf("%v k %d rows %d trans %v: [%d,%d] = %v, want %v", s, k, rows, trans, i, l, dst[i*width+l], want)
							}
						}
					}
				}
			}
		}
	}
}

// depths are the reduction lengths where something changes.
var depths = []int{1, 2, 3, 5, 127, 128, 129, 255, 256, 257, 383, 1000}

func TestGemv(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	for _, dt := range dtypes {
		for _, k := range depths {
			for _, n := range []int{1, 33, 64, 96, 7 * 32} {
				if testing.Short() && n > 64 && k > 257 {
					continue
				}
				m := randomMatrix(r, dt, n, k, n == 33)
				xs := random(r, k+1)[1:]
				want := make([]float32, n)
				for i := range want {
					want[i] = dot(xs, m.w[i*k:(i+1)*k])
				}
				for _, s := range isa.Available() {
					cod := Codec(s, dt)
					np := panel.Count(n)
					all, y := guard(np * width)
					cod.Gemv(y, xs, m.pack(&cod), k)
					for i, v := range y {
						if i < n && !same(v, want[i]) || i >= n && math.Float32bits(v) != 0 {
							t.Fatalf("%v %v n=%d k=%d: y[%d] = %x", s, dt, n, k, i, v)
						}
					}
					checkGuard(t, all, np*width)
				}
			}
		}
	}
}

// product computes A·Wᵀ by Panels in pieces of `piece` panels, with guards.
func product(t *testing.T, s isa.Set, a []float32, lda, m, k int, w *matrix, ldc, piece int) []float32 {
	t.Helper()
	ks := For(s)
	cod := Codec(s, w.dt)
	packed := w.pack(&cod)
	gp, pa := guard(ks.PackASize(m, k))
	ks.PackA(pa, a, lda, m, k)
	checkGuard(t, gp, len(pa))
	gs, scratch := guard(ks.ScratchSize(m))
	gc, c := guard(m * ldc)
	for p := 0; p < panel.Count(w.rows); p += piece {
		ks.Panels(c, ldc, w.rows, pa, m, k, &cod, packed, p, min(p+piece, panel.Count(w.rows)), scratch)
	}
	checkGuard(t, gs, len(scratch))
	checkGuard(t, gc, len(c))
	out := make([]float32, 0, m*w.rows)
	for i := range m {
		for j := w.rows; j < ldc; j++ {
			if v := c[i*ldc+j]; v == v {
				t.Fatalf("%v: wrote column %d of %d", s, j, w.rows)
			}
		}
		out = append(out, c[i*ldc:i*ldc+w.rows]...)
	}
	return out
}

func TestPanels(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 1))
	check := func(dt DType, m, n, k int) {
		w := randomMatrix(r, dt, n, k, false)
		lda := k + r.IntN(3)
		a := random(r, m*lda+1)[1:]
		want := make([]float32, m*n)
		for i := range m {
			for j := range n {
				want[i*n+j] = dot(a[i*lda:i*lda+k], w.w[j*k:(j+1)*k])
			}
		}
		for _, s := range isa.Available() {
			got := product(t, s, a, lda, m, k, w, n+r.IntN(5), 1+r.IntN(3))
			for i, v := range got {
				if !same(v, want[i]) {
					t.Fatalf("%v %v m=%d n=%d k=%d: C[%d,%d] = %x, want %x", s, dt, m, n, k, i/n, i%n, v, want[i])
				}
			}
		}
	}
	for _, dt := range dtypes {
		for m := 1; m <= 40; m++ {
			if testing.Short() && m%5 != 2 {
				continue
			}
			check(dt, m, 1+r.IntN(70), 1+r.IntN(140))
		}
		for _, k := range depths {
			m := 1 + r.IntN(9)
			if testing.Short() {
				m = 3
			}
			check(dt, m, 33, k)
		}
		check(dt, 1, 32, 0)
	}
	if !testing.Short() {
		check(F32, 2*chunkRows+5, 40, 130) // several chunks of tiles
		check(BF16, chunkRows+3, 33, 129)
		check(F32, 110, 32*Group+40, 1000) // groups of panels
		check(F16, 70, 32*Group+33, 1500)
	}
}

// Rows do not depend on the batch they are computed in.
func TestBatchDoesNotMatter(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 1))
	const n, k = 65, 131
	eachSet(t, func(t *testing.T, s isa.Set) {
		w := randomMatrix(r, BF16, n, k, false)
		cod := Codec(s, BF16)
		packed := w.pack(&cod)
		for m := 1; m <= 64; m += 7 {
			a := random(r, m*k)
			c := product(t, s, a, k, m, k, w, n, 2)
			y := make([]float32, panel.Count(n)*width)
			for i := range m {
				cod.Gemv(y, a[i*k:(i+1)*k], packed, k)
				for j := range n {
					if !same(y[j], c[i*n+j]) {
						t.Fatalf("m=%d: row %d column %d: batch %x, alone %x", m, i, j, c[i*n+j], y[j])
					}
				}
			}
		}
	})
}

func TestKernelsAllocateNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 1))
	eachSet(t, func(t *testing.T, s isa.Set) {
		for _, dt := range dtypes {
			const m, n, k = 5, 64, 130
			w := randomMatrix(r, dt, n, k, false)
			cod, ks := Codec(s, dt), For(s)
			packed := w.pack(&cod)
			a, y, c := random(r, m*k), make([]float32, n), make([]float32, m*n)
			pa, scratch := make([]float32, ks.PackASize(m, k)), make([]float32, ks.ScratchSize(m))
			allocs := testing.AllocsPerRun(3, func() {
				ks.PackA(pa, a, k, m, k)
				ks.Panels(c, n, n, pa, m, k, &cod, packed, 0, 2, scratch)
				cod.Gemv(y, a[:k], packed, k)
				cod.Pack(packed[:cod.Bytes(k)], w.raw, w.stride, width, k)
			})
			if allocs != 0 {
				t.Errorf("%v: %v allocations", dt, allocs)
			}
		}
	})
}

func TestTilesAreBalanced(t *testing.T) {
	for _, mr := range []int{4, 6, 14} {
		ks := &Kernels{mr: mr}
		for m := range 100 {
			size, big, small := ks.split(m)
			if size*small+(size+1)*big != m || (big > 0 && size+1 > mr) || size > mr || (m > 0 && size == 0) {
				t.Errorf("mr %d, m %d: %d of %d and %d of %d", mr, m, big, size+1, small, size)
			}
		}
	}
}

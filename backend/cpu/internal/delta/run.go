//go:build (amd64 || arm64) && !noasm

package delta

import (
	"unsafe"

	"samebit/backend/cpu/internal/isa"
)

// width is the number of state columns that one sweep handles: eight NEON, four
// AVX2 or two AVX-512 registers for each of d, out and kv.
const width = 32

// step is what one sweep works on; the assembly knows the offsets.
type step struct {
	src, dst  *float32 // strip of the state; may be one place
	out, v    *float32 // 32 values each
	q, k, k1  *float32 // this row's q and k, the next row's k
	wide      *float32 // 64 aligned bytes of scratch
	srcStride int      // bytes from one state row to the next
	dstStride int
	dk        int
	g, g1     float32     // decay of this row and of the next
	beta      float32     // of this row
	kv        [32]float32 // DOT(S·g, k) of this row, then of the next
}

// The assembly has these offsets written into it.
const (
	_ = -uint(unsafe.Offsetof(step{}.srcStride) ^ 64)
	_ = -uint(unsafe.Offsetof(step{}.g) ^ 88)
	_ = -uint(unsafe.Offsetof(step{}.kv) ^ 100)
)

// run takes the state in strips of 32 columns, each through all rows. In
// between, a strip lies compactly in tmp: rows of the state are often a
// multiple of 512 bytes apart and would share few sets of the first cache.
func run(h *Head, tmp []float32, set isa.Set) {
	skip := int(-uintptr(unsafe.Pointer(&tmp[0])) % 64 / 4)
	copies, strip := tmp[skip:][:16], tmp[skip+16:][:width*h.Dk]
	for j := 0; j < h.Dv; j += width {
		if h.Dv-j >= width {
			h.strip(j, copies, strip, set)
		} else {
			h.narrow(j, copies, strip, set)
		}
	}
}

func (s *step) row(h *Head, t int) {
	s.q, s.k = &h.Q[t*h.QStride:][:h.Dk][0], &h.K[t*h.KStride:][:h.Dk][0]
	s.g, s.beta = h.G[t*h.GStride], h.Beta[t*h.BetaStride]
	if t+1 < h.T {
		s.k1, s.g1 = &h.K[(t+1)*h.KStride:][:h.Dk][0], h.G[(t+1)*h.GStride]
	}
}

// strip runs columns [j, j+32).
func (h *Head) strip(j int, copies, strip []float32, set isa.Set) {
	s := step{wide: &copies[0], dk: h.Dk, srcStride: 4 * h.Dv, dstStride: 4 * width}
	last := (h.Dk - 1) * h.Dv
	src, dst := h.Src[j:][:last+width], h.Dst[j:][:last+width]
	s.src, s.dst = &src[0], &strip[0]
	for t := range h.T {
		s.row(h, t)
		s.v, s.out = &h.V[t*h.VStride+j:][:width][0], &h.Out[t*h.OutStride+j:][:width][0]
		if t == h.T-1 {
			s.dst, s.dstStride = &dst[0], 4*h.Dv
		}
		s.do(t == 0, t == h.T-1, set)
		s.src, s.srcStride = s.dst, s.dstStride
	}
}

// narrow runs the last columns, fewer than 32, with zeros beside them.
func (h *Head) narrow(j int, copies, strip []float32, set isa.Set) {
	n := h.Dv - j
	clear(strip)
	for i := range h.Dk {
		copy(strip[i*width:], h.Src[i*h.Dv+j:][:n])
	}
	var v, out [width]float32
	s := step{wide: &copies[0], dk: h.Dk, srcStride: 4 * width, dstStride: 4 * width}
	s.src, s.dst, s.v, s.out = &strip[0], &strip[0], &v[0], &out[0]
	for t := range h.T {
		s.row(h, t)
		copy(v[:], h.V[t*h.VStride+j:][:n])
		s.do(t == 0, t == h.T-1, set)
		copy(h.Out[t*h.OutStride+j:][:n], out[:])
	}
	for i := range h.Dk {
		copy(h.Dst[i*h.Dv+j:][:n], strip[i*width:])
	}
}

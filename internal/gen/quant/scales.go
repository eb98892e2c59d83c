package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// scales forms D and the minimum for 16 or 32 inputs.
func (w *walker) scales(h int) {
	f := w.f
	if w.bits() {
		w.bitScales()
		return
	}
	if w.shuffles() {
		w.shuffleScales(h)
		return
	}
	var steps []func(v int)
	add := func(more ...func(v int)) { steps = append(steps, more...) }
	// times adds the steps of dst = float(small)·half, the latter from the head at disp.
	times := func(dst func(v int) reg.VecPhysical, disp int, small func(v int)) {
		add(small, func(v int) {
			VCVTDQ2PS(w.small(v), w.small(v))
		})
		if w.heads() {
			add(func(v int) { VMULPS(w.headed(disp, v), w.small(v), dst(v)) })
			return
		}
		add(func(v int) {
			VCVTPH2PS(w.at(w.head, disp, v, 2), dst(v))
		}, func(v int) {
			VMULPS(w.small(v), dst(v), dst(v))
		})
	}
	switch f.scale {
	case plain:
		add(func(v int) { VCVTPH2PS(w.at(w.z, 0, v, 2), w.first(v)) })
		if f.min {
			add(func(v int) { VCVTPH2PS(w.at(w.z, 64, v, 2), w.min(v)) })
		}
	case sub32:
		times(w.first, 0, func(v int) { VPMOVZXBD(w.at(w.z, 0, v, 1), w.small(v)) })
		times(w.min, 64, func(v int) { VPMOVZXBD(w.at(w.z, 32, v, 1), w.small(v)) })
	case sub16:
		times(w.first, 0, func(v int) { VPMOVSXBD(w.at(w.z, 32*h, v, 1), w.small(v)) })
	case nibbles:
		times(w.first, 0, func(v int) {
			VPMOVZXBD(w.at(w.z, 32*h, v, 1), w.small(v))
			w.and(w.constant(15), w.small(v), w.small(v))
		})
		times(w.min, 64, func(v int) {
			VPMOVZXBD(w.at(w.z, 32*h, v, 1), w.small(v))
			VPSRLD(Imm(4), w.small(v), w.small(v))
		})
	}
	if !f.min {
		add(func(v int) { VMULPS(w.constant(math.Float32bits(f.off)), w.first(v), w.min(v)) })
	}
	w.together(append(steps, w.spread()...)...)
}

// heads says whether the halves of a head are widened once per block: where registers are
// left for them, and with AVX2, whose products take them from memory.
func (w *walker) heads() bool { return !w.evex || w.lanes == 16 && w.rows == 0 }

// headed is where the halves of a head at disp (0 or 64) then lie.
func (w *walker) headed(disp, v int) Op {
	if !w.evex {
		return Mem{Base: w.table, Disp: (16 + disp/16 + v) * w.lanes * 4}
	}
	return w.v(2 + disp/16 + v)
}

// widen converts the halves of a head at disp; a D of shuffled codes becomes D·2⁸.
func (w *walker) widen(disp, v int) {
	to := w.headed(disp, v)
	r, ok := to.(reg.VecPhysical)
	if !ok {
		r = w.v(14)
	}
	VCVTPH2PS(w.at(w.head, disp, v, 2), r)
	if w.shuffles() && disp == 0 {
		VMULPS(w.vector(math.Float32bits(0x1p8)), r, r)
	}
	if !ok {
		VMOVUPS(r, to)
	}
}

// small is a temporary of vector v for its byte scales.
func (w *walker) small(v int) reg.VecPhysical { return w.temporary(v, 1-v&1) }

// first is where D of vector v is formed.
func (w *walker) first(v int) reg.VecPhysical {
	if r, ok := w.scaleAt(v, 0).(reg.VecPhysical); ok {
		return r
	}
	return w.v(14)
}

// spread returns the steps that write D·2⁻⁸ᵖ to their places; the former is in first.
func (w *walker) spread() (steps []func(v int)) {
	for p := range 4 {
		place := func(v, p int) reg.VecPhysical {
			if r, ok := w.scaleAt(v, p).(reg.VecPhysical); ok {
				return r
			}
			if w.evex {
				return w.temporary(v, 0)
			}
			return w.v(14)
		}
		if p > 0 {
			steps = append(steps, func(v int) {
				VMULPS(w.constant(math.Float32bits(0x1p-8)), place(v, p-1), place(v, p))
			})
		}
		if _, ok := w.scaleAt(0, p).(Mem); ok {
			steps = append(steps, func(v int) { VMOVUPS(place(v, p), w.scaleAt(v, p)) })
		}
	}
	return steps
}

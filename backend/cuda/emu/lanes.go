package emu

// An operation is written once, as a loop over all 32 lanes without side
// effects. These make instructions of such loops: with a full warp the result goes
// straight to its register, otherwise beside it, and the lanes of the mask are
// taken over.

func (d *v32) blend(s *v32, mask uint32) {
	for i := range d {
		if mask>>i&1 != 0 {
			d[i] = s[i]
		}
	}
}

func (d *v64) blend(s *v64, mask uint32) {
	for i := range d {
		if mask>>i&1 != 0 {
			d[i] = s[i]
		}
	}
}

func (w *warp) to32(in *inst, mask uint32) *v32 {
	if mask == full {
		return &w.r32[in.d]
	}
	return &w.t32
}

func (w *warp) done32(in *inst, mask uint32) {
	if mask != full {
		w.r32[in.d].blend(&w.t32, mask)
	}
}

func (w *warp) to64(in *inst, mask uint32) *v64 {
	if mask == full {
		return &w.r64[in.d]
	}
	return &w.t64
}

func (w *warp) done64(in *inst, mask uint32) {
	if mask != full {
		w.r64[in.d].blend(&w.t64, mask)
	}
}

// The names say the widths of the result and of the operands; p is a predicate.

func do32x32(f func(d, a *v32)) exec {
	return func(w *warp, in *inst, m uint32) { f(w.to32(in, m), &w.r32[in.a]); w.done32(in, m) }
}

func do32x32x32(f func(d, a, b *v32)) exec {
	return func(w *warp, in *inst, m uint32) { f(w.to32(in, m), &w.r32[in.a], &w.r32[in.b]); w.done32(in, m) }
}

func do32x32x32x32(f func(d, a, b, c *v32)) exec {
	return func(w *warp, in *inst, m uint32) {
		f(w.to32(in, m), &w.r32[in.a], &w.r32[in.b], &w.r32[in.c])
		w.done32(in, m)
	}
}

func do64x64(f func(d, a *v64)) exec {
	return func(w *warp, in *inst, m uint32) { f(w.to64(in, m), &w.r64[in.a]); w.done64(in, m) }
}

func do64x64x64(f func(d, a, b *v64)) exec {
	return func(w *warp, in *inst, m uint32) { f(w.to64(in, m), &w.r64[in.a], &w.r64[in.b]); w.done64(in, m) }
}

func do64x64x64x64(f func(d, a, b, c *v64)) exec {
	return func(w *warp, in *inst, m uint32) {
		f(w.to64(in, m), &w.r64[in.a], &w.r64[in.b], &w.r64[in.c])
		w.done64(in, m)
	}
}

func do64x32(f func(d *v64, a *v32)) exec {
	return func(w *warp, in *inst, m uint32) { f(w.to64(in, m), &w.r32[in.a]); w.done64(in, m) }
}

func do32x64(f func(d *v32, a *v64)) exec {
	return func(w *warp, in *inst, m uint32) { f(w.to32(in, m), &w.r64[in.a]); w.done32(in, m) }
}

func do64x32x32(f func(d *v64, a, b *v32)) exec {
	return func(w *warp, in *inst, m uint32) { f(w.to64(in, m), &w.r32[in.a], &w.r32[in.b]); w.done64(in, m) }
}

func do64x32x32x64(f func(d *v64, a, b *v32, c *v64)) exec {
	return func(w *warp, in *inst, m uint32) {
		f(w.to64(in, m), &w.r32[in.a], &w.r32[in.b], &w.r64[in.c])
		w.done64(in, m)
	}
}

func do64x64x32(f func(d, a *v64, b *v32)) exec {
	return func(w *warp, in *inst, m uint32) { f(w.to64(in, m), &w.r64[in.a], &w.r32[in.b]); w.done64(in, m) }
}

func do64x64x32x32(f func(d, a *v64, b, c *v32)) exec {
	return func(w *warp, in *inst, m uint32) {
		f(w.to64(in, m), &w.r64[in.a], &w.r32[in.b], &w.r32[in.c])
		w.done64(in, m)
	}
}

// For operations that are rare, a function of one lane is enough.

func each32(f func(a uint32) uint32) exec {
	return do32x32(func(d, a *v32) {
		for i := range d {
			d[i] = f(a[i])
		}
	})
}

func each32x2(f func(a, b uint32) uint32) exec {
	return do32x32x32(func(d, a, b *v32) {
		for i := range d {
			d[i] = f(a[i], b[i])
		}
	})
}

func each32x3(f func(a, b, c uint32) uint32) exec {
	return do32x32x32x32(func(d, a, b, c *v32) {
		for i := range d {
			d[i] = f(a[i], b[i], c[i])
		}
	})
}

func each64(f func(a uint64) uint64) exec {
	return do64x64(func(d, a *v64) {
		for i := range d {
			d[i] = f(a[i])
		}
	})
}

func each64x2(f func(a, b uint64) uint64) exec {
	return do64x64x64(func(d, a, b *v64) {
		for i := range d {
			d[i] = f(a[i], b[i])
		}
	})
}

func each64x3(f func(a, b, c uint64) uint64) exec {
	return do64x64x64x64(func(d, a, b, c *v64) {
		for i := range d {
			d[i] = f(a[i], b[i], c[i])
		}
	})
}

func each64to32(f func(a uint64) uint32) exec {
	return do32x64(func(d *v32, a *v64) {
		for i := range d {
			d[i] = f(a[i])
		}
	})
}

func each32to64(f func(a uint32) uint64) exec {
	return do64x32(func(d *v64, a *v32) {
		for i := range d {
			d[i] = f(a[i])
		}
	})
}

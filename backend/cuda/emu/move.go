package emu

import "math"

func buildMov(c *compiler) error {
	t, err := c.takeType()
	if err != nil {
		return err
	}
	if err := c.args(2); err != nil {
		return err
	}
	in := c.n.in
	in.class = Move
	d, s := c.st.args[0], c.st.args[1]
	switch {
	case s.kind == opVector:
		return c.pack(t, d, s)
	case d.kind == opVector:
		return c.unpack(t, d, s)
	case t.kind == 'p':
		in.run = func(w *warp, in *inst, m uint32) { w.pred[in.d] = w.pred[in.d]&^m | w.pred[in.a]&m }
	case t.bits == 64:
		in.run = do64x64(func(d, a *v64) { *d = *a })
	default:
		in.run = do32x32(func(d, a *v32) { *d = *a })
	}
	if err := c.use(s, t, &in.a); err != nil {
		return err
	}
	return c.def(d, t, &in.d)
}

// pack makes one register of the parts of a vector, the first lowest.
func (c *compiler) pack(t typ, d, s operand) error {
	in, n := c.n.in, len(s.parts)
	part := typ{'b', t.bits / n}
	if n == 0 || t.kind != 'b' || part.bits*n != t.bits || part.bits < 8 {
		return c.fail("%d parts of %v are not supported", n, t)
	}
	for i, o := range s.parts {
		if err := c.use(o, part, &in.vec[i]); err != nil {
			return err
		}
	}
	if t.bits == 64 {
		in.run = func(w *warp, in *inst, m uint32) {
			var r v64
			for k := range n {
				for i, x := range &w.r32[in.vec[k]] {
					r[i] |= uint64(x) << (k * part.bits)
				}
			}
			w.r64[in.d].blend(&r, m)
		}
	} else {
		in.run = func(w *warp, in *inst, m uint32) {
			var r v32
			for k := range n {
				for i, x := range &w.r32[in.vec[k]] {
					r[i] |= x << (k * part.bits)
				}
			}
			w.r32[in.d].blend(&r, m)
		}
	}
	return c.def(d, t, &in.d)
}

func (c *compiler) unpack(t typ, d, s operand) error {
	in, n := c.n.in, len(d.parts)
	part := typ{'b', t.bits / n}
	if t.kind != 'b' || part.bits*n != t.bits || part.bits < 8 {
		return c.fail("%d parts of %v are not supported", n, t)
	}
	if err := c.use(s, t, &in.a); err != nil {
		return err
	}
	for i, o := range d.parts {
		if err := c.def(o, part, &in.vec[i]); err != nil {
			return err
		}
	}
	keep := uint64(1)<<part.bits - 1
	in.run = func(w *warp, in *inst, m uint32) {
		var src v64
		if t.bits == 64 {
			src = w.r64[in.a]
		} else {
			for i, x := range &w.r32[in.a] {
				src[i] = uint64(x)
			}
		}
		for k := range n {
			r := &w.r32[in.vec[k]]
			for i := range r {
				if m>>i&1 != 0 {
					r[i] = uint32(src[i] >> (k * part.bits) & keep)
				}
			}
		}
	}
	return nil
}

func buildSelp(c *compiler) error {
	t, err := c.takeType()
	if err != nil {
		return err
	}
	if err := c.args(4); err != nil {
		return err
	}
	in := c.n.in
	in.class = Move
	if t.bits == 64 {
		in.run = func(w *warp, in *inst, m uint32) {
			d, a, b, p := &w.r64[in.d], &w.r64[in.a], &w.r64[in.b], w.pred[in.c]
			for i := range d {
				v := b[i]
				if p>>i&1 != 0 {
					v = a[i]
				}
				if m>>i&1 != 0 {
					d[i] = v
				}
			}
		}
	} else {
		in.run = func(w *warp, in *inst, m uint32) {
			d, a, b, p := &w.r32[in.d], &w.r32[in.a], &w.r32[in.b], w.pred[in.c]
			for i := range d {
				v := b[i]
				if p>>i&1 != 0 {
					v = a[i]
				}
				if m>>i&1 != 0 {
					d[i] = v
				}
			}
		}
	}
	for i, p := range []*int32{&in.a, &in.b} {
		if err := c.use(c.st.args[1+i], t, p); err != nil {
			return err
		}
	}
	if err := c.use(c.st.args[3], types["pred"], &in.c); err != nil {
		return err
	}
	return c.def(c.st.args[0], t, &in.d)
}

// buildCvta changes between an address of a space and a generic one. Global
// addresses are generic ones; the other spaces have windows.
func buildCvta(c *compiler) error {
	t, err := c.takeType()
	if err != nil {
		return err
	}
	if t != types["u64"] {
		return c.fail("only .u64 is supported")
	}
	in := c.n.in
	in.class = Move
	to := c.take("to")
	base := windows[spaces["."+c.takeOf("global", "shared", "local", "const", "param")]]
	if to {
		base = -base
	}
	in.run = each64(func(a uint64) uint64 { return a + base })
	if base == 0 {
		in.run = do64x64(func(d, a *v64) { *d = *a })
	}
	if err := c.args(2); err != nil {
		return err
	}
	if err := c.use(c.st.args[1], t, &in.a); err != nil {
		return err
	}
	return c.def(c.st.args[0], t, &in.d)
}

// converted is a type that cvt knows; halves are only converted, never computed
// with.
func converted(name string) (typ, bool) {
	if name == "f16" {
		return typ{'f', 16}, true
	}
	t, ok := types[name]
	return t, ok
}

// buildCvt converts.
func buildCvt(c *compiler) error {
	if c.st.op == "cvt.rn.bf16x2.f32" {
		return c.packBF16()
	}
	mods := c.mods
	if len(mods) < 2 {
		return c.fail("two types are wanted")
	}
	to, ok1 := converted(mods[len(mods)-2])
	from, ok2 := converted(mods[len(mods)-1])
	if !ok1 || !ok2 || to.kind == 'p' || from.kind == 'p' || to.kind == 'b' || from.kind == 'b' {
		return c.fail("the types are not supported")
	}
	c.mods = mods[:len(mods)-2]
	in := c.n.in
	in.class = Move
	if err := c.args(2); err != nil {
		return err
	}
	if err := c.useWide(c.st.args[1], from, &in.a, true); err != nil {
		return err
	}
	if err := c.defWide(c.st.args[0], to, &in.d, true); err != nil {
		return err
	}
	// The registers may be wider than the types.
	wideFrom := c.n.uses[len(c.n.uses)-1].v.file == f64file
	for _, u := range c.n.uses {
		if u.p == &in.a {
			wideFrom = u.v.file == f64file
		}
	}
	wideTo := c.n.defs[0].v.file == f64file
	toBits := to.bits
	if c.st.args[0].kind == opReg {
		toBits = c.st.args[0].reg.t.bits
	}
	sat := c.take("sat")
	mode := c.takeOf("rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi")
	var f func(uint64) uint64
	switch {
	case from == typ{'f', 16}:
		if to != types["f32"] || mode != "" || sat {
			return c.fail("a half is converted to .f32 only")
		}
		f = func(a uint64) uint64 { return uint64(bits32(fromHalf(uint16(a)))) }
	case to == typ{'f', 16}:
		if from != types["f32"] || mode != "rn" || sat {
			return c.fail("a half is made from .f32 by .rn only")
		}
		f = func(a uint64) uint64 { return uint64(toHalf(f32(uint32(a)))) }
	case !to.float() && !from.float():
		if mode != "" {
			return c.fail("no rounding is wanted")
		}
		f = convertInts(to, from, toBits, sat)
	case to.float() && !from.float():
		if mode != "rn" || sat {
			return c.fail("only .rn is supported")
		}
		f = func(a uint64) uint64 {
			a = widen(a, from)
			switch {
			case to.bits == 64 && from.signed():
				return bits64(float64(int64(a)))
			case to.bits == 64:
				return bits64(float64(a))
			case from.signed():
				return uint64(bits32(float32(int64(a))))
			}
			return uint64(bits32(float32(a)))
		}
	case !to.float():
		r := map[string]func(float64) float64{"rni": math.RoundToEven, "rzi": math.Trunc, "rmi": math.Floor, "rpi": math.Ceil}[mode]
		if r == nil {
			return c.fail("one of .rni, .rzi, .rmi and .rpi is wanted")
		}
		f = func(a uint64) uint64 {
			x := f64(a)
			if from.bits == 32 {
				x = float64(f32(uint32(a)))
			}
			return clip(toInt(r(x), to, from.bits == 64 || to.bits == 64), toBits)
		}
	case to.bits == 64 && from.bits == 32:
		if mode != "" || sat {
			return c.fail("no rounding is wanted")
		}
		f = func(a uint64) uint64 { return bits64(float64(f32(uint32(a)))) }
	case to.bits == 32 && from.bits == 64:
		if mode != "rn" || sat {
			return c.fail("only .rn is supported")
		}
		f = func(a uint64) uint64 { return uint64(bits32(float32(f64(a)))) }
	default: // the same width: rounding to an integral value, or saturation
		r := map[string]func(float64) float64{"rni": math.RoundToEven, "rzi": math.Trunc, "rmi": math.Floor, "rpi": math.Ceil, "": func(x float64) float64 { return x }}[mode]
		if r == nil {
			return c.fail("the rounding is not supported")
		}
		f = func(a uint64) uint64 {
			x := f64(a)
			if from.bits == 32 {
				x = float64(f32(uint32(a)))
			}
			x = r(x)
			if sat {
				if !(x > 0) {
					x = 0
				}
				x = min(x, 1)
			}
			if to.bits == 32 {
				return uint64(bits32(float32(x)))
			}
			return bits64(x)
		}
	}
	switch {
	case wideTo && wideFrom:
		in.run = each64(f)
	case wideTo:
		in.run = each32to64(func(a uint32) uint64 { return f(uint64(a)) })
	case wideFrom:
		in.run = each64to32(func(a uint64) uint32 { return uint32(f(a)) })
	default:
		in.run = each32(func(a uint32) uint32 { return uint32(f(uint64(a))) })
	}
	// The usual ones without a call for each lane.
	switch {
	case to.bits == 64 && from == types["s32"] && !to.float() && !sat && !wideFrom:
		in.run = do64x32(func(d *v64, a *v32) {
			for i := range d {
				d[i] = uint64(int64(int32(a[i])))
			}
		})
	case to.bits == 64 && from == types["u32"] && !to.float() && !sat && !wideFrom:
		in.run = do64x32(func(d *v64, a *v32) {
			for i := range d {
				d[i] = uint64(a[i])
			}
		})
	case to.bits == 32 && !to.float() && from.bits == 64 && !from.float() && !sat && !wideTo:
		in.run = do32x64(func(d *v32, a *v64) {
			for i := range d {
				d[i] = uint32(a[i])
			}
		})
	}
	return nil
}

// widen is the value of the low bits of a register as a 64-bit integer.
func widen(a uint64, t typ) uint64 {
	if t.bits == 64 {
		return a
	}
	a &= 1<<t.bits - 1
	if t.signed() && a>>(t.bits-1) != 0 {
		a |= ^uint64(0) << t.bits
	}
	return a
}

// clip keeps the bits that a register has.
func clip(a uint64, bits int) uint64 {
	if bits >= 64 {
		return a
	}
	return a & (1<<bits - 1)
}

func convertInts(to, from typ, reg int, sat bool) func(uint64) uint64 {
	return func(a uint64) uint64 {
		a = widen(a, from)
		if sat {
			lo, hi := uint64(0), ^uint64(0)>>(64-to.bits)
			if to.signed() {
				hi >>= 1
				lo = ^hi
			}
			switch neg := from.signed() && int64(a) < 0; {
			case neg && !to.signed():
				a = 0
			case neg:
				a = uint64(max(int64(a), int64(lo)))
			default:
				a = min(a, hi)
			}
		}
		return clip(widen(a, to), reg)
	}
}

// toInt is an integral float as an integer, the nearest that there is.
// NaN becomes 0, or the sign bit alone where 64 bits take part.
func toInt(x float64, t typ, long bool) uint64 {
	lo, hi := 0.0, math.Ldexp(1, t.bits)
	if t.signed() {
		lo, hi = -math.Ldexp(1, t.bits-1), math.Ldexp(1, t.bits-1)
	}
	switch {
	case x != x:
		if long {
			return 1 << (t.bits - 1)
		}
		return 0
	case x < lo:
		x = lo
	case x >= hi:
		if t.signed() {
			return 1<<(t.bits-1) - 1
		}
		return ^uint64(0) >> (64 - t.bits)
	}
	if x < 0 {
		return uint64(int64(x))
	}
	return uint64(x)
}

// fromHalf is exact, subnormals too.
func fromHalf(h uint16) float32 {
	m, e := float64(h&0x3ff), int(h>>10&31)
	switch {
	case e == 31 && m != 0:
		return f32(nan32)
	case e == 31:
		m = math.Inf(1)
	case e == 0:
		m = math.Ldexp(m, -24)
	default:
		m = math.Ldexp(m+1024, e-25)
	}
	if h>>15 != 0 {
		m = -m
	}
	return float32(m)
}

// toHalf rounds to the nearest half, ties to even.
func toHalf(x float32) uint16 {
	sign := uint16(math.Float32bits(x) >> 16 & 0x8000)
	a := math.Abs(float64(x))
	switch {
	case x != x:
		return 0x7fff
	case a >= 65520:
		return sign | 0x7c00
	}
	_, e := math.Frexp(a)
	e = max(e, -13) // of 0.5 <= a/2^e < 1; below, the step is 2^-24
	n := math.RoundToEven(math.Ldexp(a, 11-e))
	if n >= 2048 {
		n, e = 1024, e+1
	}
	if n < 1024 {
		return sign | uint16(n)
	}
	return sign | uint16(e+14)<<10 | uint16(n)&0x3ff
}

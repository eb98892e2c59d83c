package emu

import "math/bits"

// logic builds and, or, xor and not, of predicates too.
func logic(f32 func(d, a, b *v32), f64 func(d, a, b *v64), fp func(a, b uint32) uint32) func(c *compiler) error {
	return func(c *compiler) error {
		t, err := c.takeType()
		if err != nil {
			return err
		}
		switch {
		case t.kind == 'p':
			c.n.in.run = func(w *warp, in *inst, m uint32) {
				w.pred[in.d] = w.pred[in.d]&^m | fp(w.pred[in.a], w.pred[in.b])&m
			}
		case t.kind != 'b':
			return c.fail("the type %v is not supported", t)
		case t.bits == 64:
			c.n.in.run = do64x64x64(f64)
		default:
			c.n.in.run = do32x32x32(f32)
		}
		return c.binary(t)
	}
}

var buildAnd = logic(
	func(d, a, b *v32) {
		for i := range d {
			d[i] = a[i] & b[i]
		}
	},
	func(d, a, b *v64) {
		for i := range d {
			d[i] = a[i] & b[i]
		}
	},
	func(a, b uint32) uint32 { return a & b })

var buildOr = logic(
	func(d, a, b *v32) {
		for i := range d {
			d[i] = a[i] | b[i]
		}
	},
	func(d, a, b *v64) {
		for i := range d {
			d[i] = a[i] | b[i]
		}
	},
	func(a, b uint32) uint32 { return a | b })

var buildXor = logic(
	func(d, a, b *v32) {
		for i := range d {
			d[i] = a[i] ^ b[i]
		}
	},
	func(d, a, b *v64) {
		for i := range d {
			d[i] = a[i] ^ b[i]
		}
	},
	func(a, b uint32) uint32 { return a ^ b })

func buildNot(c *compiler) error {
	t, err := c.takeType()
	if err != nil {
		return err
	}
	switch {
	case t.kind == 'p':
		c.n.in.run = func(w *warp, in *inst, m uint32) { w.pred[in.d] = w.pred[in.d]&^m | ^w.pred[in.a]&m }
	case t.kind != 'b':
		return c.fail("the type %v is not supported", t)
	case t.bits == 64:
		c.n.in.run = each64(func(a uint64) uint64 { return ^a })
	case t.bits == 16:
		c.n.in.run = each32(func(a uint32) uint32 { return ^a & 0xffff })
	default:
		c.n.in.run = each32(func(a uint32) uint32 { return ^a })
	}
	return c.unary(t)
}

// lutOf is the function of lop3 that a table of eight results stands for.
func lutOf(lut uint8) func(a, b, e uint32) uint32 {
	return func(a, b, e uint32) uint32 {
		var r uint32
		for i := range 8 {
			if lut>>i&1 == 0 {
				continue
			}
			x, y, z := ^a, ^b, ^e
			if i&4 != 0 {
				x = a
			}
			if i&2 != 0 {
				y = b
			}
			if i&1 != 0 {
				z = e
			}
			r |= x & y & z
		}
		return r
	}
}

func buildLop3(c *compiler) error {
	if t, err := c.takeType(); err != nil || t != types["b32"] {
		return c.fail("only .b32 is supported")
	}
	if err := c.args(5); err != nil {
		return err
	}
	l := c.st.args[4]
	if l.kind != opImm || l.fl != 0 || l.imm > 255 {
		return c.fail("the table must be a number up to 255")
	}
	c.n.in.run = each32x3(lutOf(uint8(l.imm)))
	in := c.n.in
	for i, p := range []*int32{&in.a, &in.b, &in.c} {
		if err := c.use(c.st.args[1+i], types["b32"], p); err != nil {
			return err
		}
	}
	return c.def(c.st.args[0], types["b32"], &in.d)
}

// shift builds shl and shr: amounts of the width and more shift everything out.
func (c *compiler) shift(left bool) error {
	t, err := c.takeType()
	if err != nil {
		return err
	}
	in := c.n.in
	switch {
	case left && t.bits == 32:
		in.run = do32x32x32(func(d, a, b *v32) {
			for i := range d {
				d[i] = a[i] << b[i]
			}
		})
	case left && t.bits == 64:
		in.run = do64x64x32(func(d, a *v64, b *v32) {
			for i := range d {
				d[i] = a[i] << b[i]
			}
		})
	case left && t.bits == 16:
		in.run = each32x2(func(a, b uint32) uint32 { return a << b & 0xffff })
	case t.bits == 32 && t.signed():
		in.run = do32x32x32(func(d, a, b *v32) {
			for i := range d {
				d[i] = uint32(int32(a[i]) >> b[i])
			}
		})
	case t.bits == 32:
		in.run = do32x32x32(func(d, a, b *v32) {
			for i := range d {
				d[i] = a[i] >> b[i]
			}
		})
	case t.bits == 64 && t.signed():
		in.run = do64x64x32(func(d, a *v64, b *v32) {
			for i := range d {
				d[i] = uint64(int64(a[i]) >> b[i])
			}
		})
	case t.bits == 64:
		in.run = do64x64x32(func(d, a *v64, b *v32) {
			for i := range d {
				d[i] = a[i] >> b[i]
			}
		})
	case t.bits == 16 && t.signed():
		in.run = each32x2(func(a, b uint32) uint32 { return uint32(ext(a, 16)>>b) & 0xffff })
	case t.bits == 16:
		in.run = each32x2(func(a, b uint32) uint32 { return a >> b })
	}
	if err := c.args(3); err != nil {
		return err
	}
	if err := c.use(c.st.args[1], t, &in.a); err != nil {
		return err
	}
	if err := c.use(c.st.args[2], types["u32"], &in.b); err != nil {
		return err
	}
	return c.def(c.st.args[0], t, &in.d)
}

func buildShl(c *compiler) error { return c.shift(true) }
func buildShr(c *compiler) error { return c.shift(false) }

func buildShf(c *compiler) error {
	t, err := c.takeType()
	if err != nil || t != types["b32"] {
		return c.fail("only .b32 is supported")
	}
	left := c.take("l")
	if !left && !c.take("r") {
		return c.fail("one of .l and .r is missing")
	}
	wrap := c.take("wrap")
	if !wrap && !c.take("clamp") {
		return c.fail("one of .wrap and .clamp is missing")
	}
	c.n.in.run = each32x3(func(lo, hi, n uint32) uint32 {
		if wrap {
			n &= 31
		}
		n = min(n, 32)
		v := uint64(hi)<<32 | uint64(lo)
		if left {
			return uint32(v << n >> 32)
		}
		return uint32(v >> n)
	})
	return c.ternary(types["b32"])
}

func buildPrmt(c *compiler) error {
	if t, err := c.takeType(); err != nil || t != types["b32"] {
		return c.fail("only .b32 is supported")
	}
	c.n.in.run = each32x3(func(a, b, sel uint32) uint32 {
		v := uint64(b)<<32 | uint64(a)
		var r uint32
		for i := range 4 {
			s := sel >> (4 * i)
			x := uint32(v>>(8*(s&7))) & 0xff
			if s&8 != 0 {
				x = uint32(int32(x<<24)>>31) & 0xff
			}
			r |= x << (8 * i)
		}
		return r
	})
	return c.ternary(types["b32"])
}

// bitField is bfe of 64 bits; narrower ones are in its low bits.
func bitField(a uint64, pos, n uint32, width int, signed bool) uint64 {
	pos, n = pos&0xff, n&0xff
	sign := uint64(0)
	if signed && n > 0 {
		if at := min(int(pos+n)-1, width-1); a>>at&1 != 0 {
			sign = ^uint64(0)
		}
	}
	if width < 64 {
		a &= 1<<width - 1
	}
	if n == 0 {
		return 0
	}
	have := max(0, width-int(pos))
	r := a >> pos
	k := min(int(n), have)
	if k < 64 {
		r = r&(1<<k-1) | sign<<k
	}
	return r
}

func buildBfe(c *compiler) error {
	t, err := c.takeType()
	if err != nil {
		return err
	}
	s := t.signed()
	in := c.n.in
	switch {
	case t.float() || t.kind == 'b':
		return c.fail("the type %v is not supported", t)
	case t.bits == 32:
		in.run = each32x3(func(a, p, n uint32) uint32 { return uint32(bitField(uint64(a), p, n, 32, s)) })
	case t.bits == 64:
		in.run = do64x64x32x32(func(d, a *v64, p, n *v32) {
			for i := range d {
				d[i] = bitField(a[i], p[i], n[i], 64, s)
			}
		})
	}
	if err := c.args(4); err != nil {
		return err
	}
	if err := c.use(c.st.args[1], t, &in.a); err != nil {
		return err
	}
	for i, p := range []*int32{&in.b, &in.c} {
		if err := c.use(c.st.args[2+i], types["u32"], p); err != nil {
			return err
		}
	}
	return c.def(c.st.args[0], t, &in.d)
}

func buildBfi(c *compiler) error {
	t, err := c.takeType()
	if err != nil {
		return err
	}
	if t.kind != 'b' {
		return c.fail("the type %v is not supported", t)
	}
	insert := func(a, b uint64, pos, n uint32, width int) uint64 {
		pos, n = pos&0xff, n&0xff
		m := ^uint64(0)
		if n < 64 {
			m = 1<<n - 1
		}
		if int(pos) >= width {
			m = 0
		}
		m <<= pos
		return b&^m | a<<pos&m
	}
	in := c.n.in
	width := t.bits
	if t.bits == 64 {
		in.run = func(w *warp, in *inst, m uint32) {
			d, a, b := w.to64(in, m), &w.r64[in.a], &w.r64[in.b]
			p, n := &w.r32[in.c], &w.r32[in.e]
			for i := range d {
				d[i] = insert(a[i], b[i], p[i], n[i], width)
			}
			w.done64(in, m)
		}
	} else {
		in.run = func(w *warp, in *inst, m uint32) {
			d, a, b := w.to32(in, m), &w.r32[in.a], &w.r32[in.b]
			p, n := &w.r32[in.c], &w.r32[in.e]
			for i := range d {
				d[i] = uint32(insert(uint64(a[i]), uint64(b[i]), p[i], n[i], width))
			}
			w.done32(in, m)
		}
	}
	if err := c.args(5); err != nil {
		return err
	}
	for i, p := range []*int32{&in.a, &in.b} {
		if err := c.use(c.st.args[1+i], t, p); err != nil {
			return err
		}
	}
	for i, p := range []*int32{&in.c, &in.e} {
		if err := c.use(c.st.args[3+i], types["u32"], p); err != nil {
			return err
		}
	}
	return c.def(c.st.args[0], t, &in.d)
}

// counting builds instructions with a result of 32 bits from one operand.
func counting(f32 func(a uint32) uint32, f64 func(a uint64) uint32) func(c *compiler) error {
	return func(c *compiler) error {
		t, err := c.takeType()
		if err != nil {
			return err
		}
		switch t.bits {
		case 64:
			c.n.in.run = each64to32(f64)
		case 32:
			c.n.in.run = each32(f32)
		}
		if err := c.args(2); err != nil {
			return err
		}
		if err := c.use(c.st.args[1], t, &c.n.in.a); err != nil {
			return err
		}
		return c.def(c.st.args[0], types["u32"], &c.n.in.d)
	}
}

var (
	buildPopc = counting(func(a uint32) uint32 { return uint32(bits.OnesCount32(a)) }, func(a uint64) uint32 { return uint32(bits.OnesCount64(a)) })
	buildClz  = counting(func(a uint32) uint32 { return uint32(bits.LeadingZeros32(a)) }, func(a uint64) uint32 { return uint32(bits.LeadingZeros64(a)) })
)

func buildBrev(c *compiler) error {
	t, err := c.takeType()
	if err != nil {
		return err
	}
	if t.bits == 64 {
		c.n.in.run = each64(bits.Reverse64)
	} else {
		c.n.in.run = each32(bits.Reverse32)
	}
	return c.unary(t)
}

// buildBfind finds the highest bit that is not the sign; ~0 if there is none.
func buildBfind(c *compiler) error {
	t, err := c.takeType()
	if err != nil {
		return err
	}
	signed, shift := t.signed(), c.take("shiftamt")
	find := func(a uint64, width int) uint32 {
		n := bits.LeadingZeros64(a << (64 - width))
		if n >= width {
			return ^uint32(0)
		}
		if shift {
			return uint32(n)
		}
		return uint32(width - 1 - n)
	}
	f32 := func(a uint32) uint32 {
		if signed && int32(a) < 0 {
			a = ^a
		}
		return find(uint64(a), 32)
	}
	f64 := func(a uint64) uint32 {
		if signed && int64(a) < 0 {
			a = ^a
		}
		return find(a, 64)
	}
	c.mods = append(c.mods, string(t.kind)+map[int]string{32: "32", 64: "64", 16: "16", 8: "8"}[t.bits])
	return counting(f32, f64)(c)
}

package emu

// masks32 makes the mask of lanes of a comparison of one lane.
func masks32(f func(a, b uint32) bool) func(a, b *v32) uint32 {
	return func(a, b *v32) uint32 {
		var r uint32
		for i := range a {
			if f(a[i], b[i]) {
				r |= 1 << i
			}
		}
		return r
	}
}

func masks64(f func(a, b uint64) bool) func(a, b *v64) uint32 {
	return func(a, b *v64) uint32 {
		var r uint32
		for i := range a {
			if f(a[i], b[i]) {
				r |= 1 << i
			}
		}
		return r
	}
}

func bit(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// The comparisons that loops live on, without a call for each lane.

func eqU32(a, b *v32) (r uint32) {
	for i := range a {
		r |= bit(a[i] == b[i]) << i
	}
	return r
}

func ltS32(a, b *v32) (r uint32) {
	for i := range a {
		r |= bit(int32(a[i]) < int32(b[i])) << i
	}
	return r
}

func ltU32(a, b *v32) (r uint32) {
	for i := range a {
		r |= bit(a[i] < b[i]) << i
	}
	return r
}

// intOrder32 is a comparison of integers, nil if there is none of this name.
func intOrder32(op string, signed bool) func(a, b *v32) uint32 {
	lt := ltU32
	if signed {
		lt = ltS32
	}
	switch op {
	case "eq":
		return eqU32
	case "ne":
		return func(a, b *v32) uint32 { return ^eqU32(a, b) }
	case "lt", "lo":
		return lt
	case "ge", "hs":
		return func(a, b *v32) uint32 { return ^lt(a, b) }
	case "gt", "hi":
		return func(a, b *v32) uint32 { return lt(b, a) }
	case "le", "ls":
		return func(a, b *v32) uint32 { return ^lt(b, a) }
	}
	return nil
}

func intOrder64(op string, signed bool) func(a, b *v64) uint32 {
	lt := masks64(func(a, b uint64) bool { return a < b })
	if signed {
		lt = masks64(func(a, b uint64) bool { return int64(a) < int64(b) })
	}
	eq := masks64(func(a, b uint64) bool { return a == b })
	switch op {
	case "eq":
		return eq
	case "ne":
		return func(a, b *v64) uint32 { return ^eq(a, b) }
	case "lt", "lo":
		return lt
	case "ge", "hs":
		return func(a, b *v64) uint32 { return ^lt(a, b) }
	case "gt", "hi":
		return func(a, b *v64) uint32 { return lt(b, a) }
	case "le", "ls":
		return func(a, b *v64) uint32 { return ^lt(b, a) }
	}
	return nil
}

// floatOrder is a comparison of floats; those that end in u are true if one is
// not a number.
func floatOrder[T float32 | float64](op string) func(a, b T) bool {
	nan := func(a, b T) bool { return a != a || b != b }
	switch op {
	case "eq":
		return func(a, b T) bool { return a == b }
	case "ne":
		return func(a, b T) bool { return a < b || a > b }
	case "lt":
		return func(a, b T) bool { return a < b }
	case "le":
		return func(a, b T) bool { return a <= b }
	case "gt":
		return func(a, b T) bool { return a > b }
	case "ge":
		return func(a, b T) bool { return a >= b }
	case "equ":
		return func(a, b T) bool { return !(a < b || a > b) }
	case "neu":
		return func(a, b T) bool { return a != b }
	case "ltu":
		return func(a, b T) bool { return !(a >= b) }
	case "leu":
		return func(a, b T) bool { return !(a > b) }
	case "gtu":
		return func(a, b T) bool { return !(a <= b) }
	case "geu":
		return func(a, b T) bool { return !(a < b) }
	case "num":
		return func(a, b T) bool { return !nan(a, b) }
	case "nan":
		return nan
	}
	return nil
}

var comparisons = []string{"eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"}

// comparison makes the mask of lanes in which a op b.
func (c *compiler) comparison(t typ) (func(w *warp, a, b int32) uint32, error) {
	op := c.takeOf(comparisons...)
	switch {
	case t == types["f32"]:
		if f := floatOrder[float32](op); f != nil {
			c.n.in.class = Float
			m := masks32(func(a, b uint32) bool { return f(f32(a), f32(b)) })
			return func(w *warp, a, b int32) uint32 { return m(&w.r32[a], &w.r32[b]) }, nil
		}
	case t == types["f64"]:
		if f := floatOrder[float64](op); f != nil {
			c.n.in.class = Float
			m := masks64(func(a, b uint64) bool { return f(f64(a), f64(b)) })
			return func(w *warp, a, b int32) uint32 { return m(&w.r64[a], &w.r64[b]) }, nil
		}
	case t.kind == 'p' || t.bits < 16:
	case t.bits == 64:
		if m := intOrder64(op, t.signed()); m != nil {
			return func(w *warp, a, b int32) uint32 { return m(&w.r64[a], &w.r64[b]) }, nil
		}
	case t.bits == 16 && t.signed():
		if m := intOrder32(op, true); m != nil {
			return func(w *warp, a, b int32) uint32 {
				x, y := w.r32[a], w.r32[b]
				for i := range x {
					x[i], y[i] = uint32(ext(x[i], 16)), uint32(ext(y[i], 16))
				}
				return m(&x, &y)
			}, nil
		}
	default:
		if m := intOrder32(op, t.signed()); m != nil {
			return func(w *warp, a, b int32) uint32 { return m(&w.r32[a], &w.r32[b]) }, nil
		}
	}
	return nil, c.fail("the comparison is not supported for %v", t)
}

func buildSetp(c *compiler) error {
	t, err := c.takeType()
	if err != nil {
		return err
	}
	cmp, err := c.comparison(t)
	if err != nil {
		return err
	}
	with := c.takeOf("and", "or", "xor")
	in := c.n.in
	n := 3
	if with != "" {
		n = 4
	}
	if err := c.args(n); err != nil {
		return err
	}
	if err := c.use(c.st.args[1], t, &in.a); err != nil {
		return err
	}
	if err := c.use(c.st.args[2], t, &in.b); err != nil {
		return err
	}
	invert := uint32(0)
	if with != "" {
		o := c.st.args[3]
		if o.kind == opNotReg {
			o.kind, invert = opReg, full
		}
		if err := c.use(o, types["pred"], &in.c); err != nil {
			return err
		}
	}
	combine := func(x, p uint32) uint32 {
		switch with {
		case "and":
			return x & p
		case "or":
			return x | p
		case "xor":
			return x ^ p
		}
		return x
	}
	d := c.st.args[0]
	pair := d.kind == opPair
	if pair {
		if err := c.def(d.parts[1], types["pred"], &in.e); err != nil {
			return err
		}
		d = d.parts[0]
	}
	if err := c.def(d, types["pred"], &in.d); err != nil {
		return err
	}
	switch {
	case with == "" && !pair:
		in.run = func(w *warp, in *inst, m uint32) {
			w.pred[in.d] = w.pred[in.d]&^m | cmp(w, in.a, in.b)&m
		}
	default:
		in.run = func(w *warp, in *inst, m uint32) {
			x, p := cmp(w, in.a, in.b), uint32(0)
			if with != "" {
				p = w.pred[in.c] ^ invert
			}
			if pair {
				w.pred[in.e] = w.pred[in.e]&^m | combine(^x, p)&m
			}
			w.pred[in.d] = w.pred[in.d]&^m | combine(x, p)&m
		}
	}
	return nil
}

// buildSet is setp with a register as the result: all ones, or 1.0.
func buildSet(c *compiler) error {
	if len(c.mods) < 3 {
		return c.fail("two types are wanted")
	}
	t, err := c.takeType()
	if err != nil {
		return err
	}
	to, err := c.takeType()
	if err != nil {
		return err
	}
	cmp, err := c.comparison(t)
	if err != nil {
		return err
	}
	yes := ^uint32(0)
	if to == types["f32"] {
		yes = 0x3f800000
	} else if to.bits != 32 {
		return c.fail("the type %v is not supported", to)
	}
	in := c.n.in
	in.run = func(w *warp, in *inst, m uint32) {
		x, d := cmp(w, in.a, in.b), &w.r32[in.d]
		for i := range d {
			if m>>i&1 != 0 {
				d[i] = yes * (x >> i & 1)
			}
		}
	}
	if err := c.args(3); err != nil {
		return err
	}
	if err := c.use(c.st.args[1], t, &in.a); err != nil {
		return err
	}
	if err := c.use(c.st.args[2], t, &in.b); err != nil {
		return err
	}
	return c.def(c.st.args[0], to, &in.d)
}

// buildSlct takes the first operand where the third is not below zero.
func buildSlct(c *compiler) error {
	ct, err := c.takeType()
	if err != nil {
		return err
	}
	t, err := c.takeType()
	if err != nil {
		return err
	}
	if t.bits != 32 || ct.bits != 32 {
		return c.fail("only types of 32 bits are supported")
	}
	in := c.n.in
	in.class = Move
	in.run = each32x3(func(a, b, x uint32) uint32 {
		if ct.float() && f32(x) >= 0 || !ct.float() && int32(x) >= 0 {
			return a
		}
		return b
	})
	if err := c.args(4); err != nil {
		return err
	}
	for i, p := range []*int32{&in.a, &in.b} {
		if err := c.use(c.st.args[1+i], t, p); err != nil {
			return err
		}
	}
	if err := c.use(c.st.args[3], ct, &in.c); err != nil {
		return err
	}
	return c.def(c.st.args[0], t, &in.d)
}

package emu

import "math/bits"

// Values of 8 and 16 bits lie in 32-bit lanes, their upper bits zero.

// ext is the sign-extended value of the low n bits.
func ext(v uint32, n int) int32 { return int32(v<<(32-n)) >> (32 - n) }

// at16x2 makes an operation of 32 bits one of 16.
func at16x2(signed bool, f func(a, b uint32) uint32) func(a, b uint32) uint32 {
	if signed {
		return func(a, b uint32) uint32 { return f(uint32(ext(a, 16)), uint32(ext(b, 16))) & 0xffff }
	}
	return func(a, b uint32) uint32 { return f(a, b) & 0xffff }
}

// binary finishes an instruction with two operands and a result of one type.
func (c *compiler) binary(t typ) error {
	if err := c.args(3); err != nil {
		return err
	}
	in := c.n.in
	if err := c.use(c.st.args[1], t, &in.a); err != nil {
		return err
	}
	if err := c.use(c.st.args[2], t, &in.b); err != nil {
		return err
	}
	return c.def(c.st.args[0], t, &in.d)
}

func (c *compiler) unary(t typ) error {
	if err := c.args(2); err != nil {
		return err
	}
	if err := c.use(c.st.args[1], t, &c.n.in.a); err != nil {
		return err
	}
	return c.def(c.st.args[0], t, &c.n.in.d)
}

func (c *compiler) ternary(t typ) error {
	if err := c.args(4); err != nil {
		return err
	}
	in := c.n.in
	for i, p := range []*int32{&in.a, &in.b, &in.c} {
		if err := c.use(c.st.args[1+i], t, p); err != nil {
			return err
		}
	}
	return c.def(c.st.args[0], t, &in.d)
}

func add32(d, a, b *v32) {
	for i := range d {
		d[i] = a[i] + b[i]
	}
}

func sub32(d, a, b *v32) {
	for i := range d {
		d[i] = a[i] - b[i]
	}
}

func add64(d, a, b *v64) {
	for i := range d {
		d[i] = a[i] + b[i]
	}
}

func sub64(d, a, b *v64) {
	for i := range d {
		d[i] = a[i] - b[i]
	}
}

func buildAdd(c *compiler) error { return c.addSub(true) }
func buildSub(c *compiler) error { return c.addSub(false) }

func (c *compiler) addSub(add bool) error {
	t, err := c.takeType()
	if err != nil {
		return err
	}
	if t.float() {
		return c.floatAddSub(t, add)
	}
	in := c.n.in
	switch {
	case t.bits == 64 && add:
		in.run = do64x64x64(add64)
	case t.bits == 64:
		in.run = do64x64x64(sub64)
	case t.bits == 16 && add:
		in.run = each32x2(func(a, b uint32) uint32 { return (a + b) & 0xffff })
	case t.bits == 16:
		in.run = each32x2(func(a, b uint32) uint32 { return (a - b) & 0xffff })
	case t.bits == 32 && add:
		in.run = do32x32x32(add32)
	case t.bits == 32:
		in.run = do32x32x32(sub32)
	}
	return c.binary(t)
}

func mul32(d, a, b *v32) {
	for i := range d {
		d[i] = a[i] * b[i]
	}
}

func mul64(d, a, b *v64) {
	for i := range d {
		d[i] = a[i] * b[i]
	}
}

func mulWideS32(d *v64, a, b *v32) {
	for i := range d {
		d[i] = uint64(int64(int32(a[i])) * int64(int32(b[i])))
	}
}

func mulWideU32(d *v64, a, b *v32) {
	for i := range d {
		d[i] = uint64(a[i]) * uint64(b[i])
	}
}

func mulHiS64(a, b uint64) uint64 {
	hi, _ := bits.Mul64(a, b)
	if int64(a) < 0 {
		hi -= b
	}
	if int64(b) < 0 {
		hi -= a
	}
	return hi
}

func mulHiU64(a, b uint64) uint64 { hi, _ := bits.Mul64(a, b); return hi }

func mulHi32(signed bool) func(a, b uint32) uint32 {
	if signed {
		return func(a, b uint32) uint32 { return uint32(uint64(int64(int32(a))*int64(int32(b))) >> 32) }
	}
	return func(a, b uint32) uint32 { return uint32(uint64(a) * uint64(b) >> 32) }
}

func buildMul(c *compiler) error {
	t, err := c.takeType()
	if err != nil {
		return err
	}
	if t.float() {
		return c.floatMul(t)
	}
	in := c.n.in
	switch part := c.takeOf("lo", "hi", "wide"); {
	case part == "":
		return c.fail("one of .lo, .hi and .wide is missing")
	case part == "wide" && t.bits == 32:
		in.run = do64x32x32(mulWideU32)
		if t.signed() {
			in.run = do64x32x32(mulWideS32)
		}
		return c.wide(t, 64)
	case part == "wide" && t.bits == 16:
		in.run = do32x32x32(mul32)
		if t.signed() {
			in.run = each32x2(func(a, b uint32) uint32 { return uint32(ext(a, 16) * ext(b, 16)) })
		}
		return c.wide(t, 32)
	case part == "wide":
	case part == "lo" && t.bits == 64:
		in.run = do64x64x64(mul64)
	case part == "lo" && t.bits == 32:
		in.run = do32x32x32(mul32)
	case part == "lo" && t.bits == 16:
		in.run = each32x2(func(a, b uint32) uint32 { return a * b & 0xffff })
	case part == "hi" && t.bits == 32:
		in.run = each32x2(mulHi32(t.signed()))
	case part == "hi" && t.bits == 64 && t.signed():
		in.run = each64x2(mulHiS64)
	case part == "hi" && t.bits == 64:
		in.run = each64x2(mulHiU64)
	case part == "hi" && t.bits == 16:
		in.run = each32x2(at16x2(t.signed(), func(a, b uint32) uint32 { return a * b >> 16 }))
	}
	return c.binary(t)
}

// wide finishes a product whose result is twice as wide.
func (c *compiler) wide(t typ, to int) error {
	if err := c.args(3); err != nil {
		return err
	}
	in := c.n.in
	if err := c.use(c.st.args[1], t, &in.a); err != nil {
		return err
	}
	if err := c.use(c.st.args[2], t, &in.b); err != nil {
		return err
	}
	return c.def(c.st.args[0], typ{t.kind, to}, &in.d)
}

func mad32(d, a, b, e *v32) {
	for i := range d {
		d[i] = a[i]*b[i] + e[i]
	}
}

func buildMad(c *compiler) error {
	t, err := c.takeType()
	if err != nil {
		return err
	}
	if t.float() {
		return c.floatFMA(t)
	}
	in := c.n.in
	switch part := c.takeOf("lo", "hi", "wide"); {
	case part == "":
		return c.fail("one of .lo, .hi and .wide is missing")
	case part == "wide":
		if t.bits != 32 {
			return c.fail("the type is not supported")
		}
		in.run = do64x32x32x64(func(d *v64, a, b *v32, e *v64) {
			for i := range d {
				d[i] = uint64(a[i])*uint64(b[i]) + e[i]
			}
		})
		if t.signed() {
			in.run = do64x32x32x64(func(d *v64, a, b *v32, e *v64) {
				for i := range d {
					d[i] = uint64(int64(int32(a[i]))*int64(int32(b[i]))) + e[i]
				}
			})
		}
		if err := c.args(4); err != nil {
			return err
		}
		if err := c.use(c.st.args[3], typ{t.kind, 64}, &in.c); err != nil {
			return err
		}
		if err := c.use(c.st.args[1], t, &in.a); err != nil {
			return err
		}
		if err := c.use(c.st.args[2], t, &in.b); err != nil {
			return err
		}
		return c.def(c.st.args[0], typ{t.kind, 64}, &in.d)
	case part == "lo" && t.bits == 32:
		in.run = do32x32x32x32(mad32)
	case part == "lo" && t.bits == 16:
		in.run = each32x3(func(a, b, e uint32) uint32 { return (a*b + e) & 0xffff })
	case part == "lo" && t.bits == 64:
		in.run = each64x3(func(a, b, e uint64) uint64 { return a*b + e })
	case part == "hi" && t.bits == 32:
		f := mulHi32(t.signed())
		in.run = each32x3(func(a, b, e uint32) uint32 { return f(a, b) + e })
	}
	return c.ternary(t)
}

// Division by zero gives all ones, and its remainder the dividend: PTX leaves
// both open.
func divU[T uint32 | uint64](a, b T) T {
	if b == 0 {
		return ^T(0)
	}
	return a / b
}

func remU[T uint32 | uint64](a, b T) T {
	if b == 0 {
		return a
	}
	return a % b
}

func divS32(a, b uint32) uint32 {
	if b == 0 {
		return ^uint32(0)
	}
	return uint32(int32(a) / int32(b))
}

func remS32(a, b uint32) uint32 {
	if b == 0 {
		return a
	}
	return uint32(int32(a) % int32(b))
}

func divS64(a, b uint64) uint64 {
	if b == 0 {
		return ^uint64(0)
	}
	return uint64(int64(a) / int64(b))
}

func remS64(a, b uint64) uint64 {
	if b == 0 {
		return a
	}
	return uint64(int64(a) % int64(b))
}

func buildDiv(c *compiler) error {
	t, err := c.takeType()
	if err != nil {
		return err
	}
	if t.float() {
		return c.floatDiv(t)
	}
	return c.pick(t, divS32, divU[uint32], divS64, divU[uint64])
}

func buildRem(c *compiler) error {
	t, err := c.takeType()
	if err != nil {
		return err
	}
	return c.pick(t, remS32, remU[uint32], remS64, remU[uint64])
}

// pick chooses the operation of an integer type.
func (c *compiler) pick(t typ, s32, u32 func(a, b uint32) uint32, s64, u64 func(a, b uint64) uint64) error {
	f32, f64 := u32, u64
	if t.signed() {
		f32, f64 = s32, s64
	}
	switch {
	case t.float() || t.kind == 'b' || t.bits == 8:
		return c.fail("the type %v is not supported", t)
	case t.bits == 64:
		c.n.in.run = each64x2(f64)
	case t.bits == 16:
		c.n.in.run = each32x2(at16x2(t.signed(), f32))
	default:
		c.n.in.run = each32x2(f32)
	}
	return c.binary(t)
}

func minS32(a, b uint32) uint32 { return uint32(min(int32(a), int32(b))) }
func maxS32(a, b uint32) uint32 { return uint32(max(int32(a), int32(b))) }
func minU32(a, b uint32) uint32 { return min(a, b) }
func maxU32(a, b uint32) uint32 { return max(a, b) }
func minS64(a, b uint64) uint64 { return uint64(min(int64(a), int64(b))) }
func maxS64(a, b uint64) uint64 { return uint64(max(int64(a), int64(b))) }
func minU64(a, b uint64) uint64 { return min(a, b) }
func maxU64(a, b uint64) uint64 { return max(a, b) }

func buildMin(c *compiler) error {
	t, err := c.takeType()
	if err != nil {
		return err
	}
	if t.float() {
		return c.floatMinMax(t, true)
	}
	return c.pick(t, minS32, minU32, minS64, minU64)
}

func buildMax(c *compiler) error {
	t, err := c.takeType()
	if err != nil {
		return err
	}
	if t.float() {
		return c.floatMinMax(t, false)
	}
	return c.pick(t, maxS32, maxU32, maxS64, maxU64)
}

func buildAbs(c *compiler) error {
	t, err := c.takeType()
	if err != nil {
		return err
	}
	switch {
	case t.float():
		c.n.in.class = Float
		if t.bits == 32 {
			c.n.in.run = each32(func(a uint32) uint32 { return a &^ (1 << 31) })
		} else {
			c.n.in.run = each64(func(a uint64) uint64 { return a &^ (1 << 63) })
		}
	case t.kind != 's':
		return c.fail("the type %v is not supported", t)
	case t.bits == 64:
		c.n.in.run = each64(func(a uint64) uint64 {
			if int64(a) < 0 {
				return -a
			}
			return a
		})
	default:
		n := t.bits
		c.n.in.run = each32(func(a uint32) uint32 {
			if v := ext(a, n); v < 0 {
				return uint32(-v) & (1<<n - 1)
			}
			return a
		})
	}
	return c.unary(t)
}

func buildNeg(c *compiler) error {
	t, err := c.takeType()
	if err != nil {
		return err
	}
	switch {
	case t.float():
		c.n.in.class = Float
		if t.bits == 32 {
			c.n.in.run = each32(func(a uint32) uint32 { return a ^ 1<<31 })
		} else {
			c.n.in.run = each64(func(a uint64) uint64 { return a ^ 1<<63 })
		}
	case t.bits == 64:
		c.n.in.run = each64(func(a uint64) uint64 { return -a })
	case t.bits == 16:
		c.n.in.run = each32(func(a uint32) uint32 { return -a & 0xffff })
	default:
		c.n.in.run = each32(func(a uint32) uint32 { return -a })
	}
	return c.unary(t)
}

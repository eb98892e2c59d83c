package emu

import (
	"math"

	"samebit/internal/canon"
)

// NaN results are the one that PTX produces (numerics.md 11 fixes no payload).
const (
	nan32 = 0x7fffffff
	nan64 = 0xfff8000000000000
)

func bits32(x float32) uint32 {
	if x != x {
		return nan32
	}
	return math.Float32bits(x)
}

func bits64(x float64) uint64 {
	if x != x {
		return nan64
	}
	return math.Float64bits(x)
}

func f32(b uint32) float32 { return math.Float32frombits(b) }
func f64(b uint64) float64 { return math.Float64frombits(b) }

// rounding is a direction: "rn", "rz", "rm" (down) or "rp" (up).
type rounding string

// directed turns the nearest value r into the one that rounding takes, when err
// has the sign of the exact value less r.
func directed(r float32, err float64, mode rounding) float32 {
	if err == 0 || err != err || r != r {
		return r
	}
	down, up := float32(math.Inf(-1)), float32(math.Inf(1))
	if math.IsInf(float64(r), 0) {
		err = -float64(r) // finite value, rounded away
	}
	toward := r
	switch {
	case mode == "rm" && err < 0, mode == "rz" && err < 0 && (r > 0 || r == 0):
		toward = down
	case mode == "rp" && err > 0, mode == "rz" && err > 0 && (r < 0 || r == 0):
		toward = up
	default:
		return r
	}
	if r == 0 && mode == "rz" { // the exact value is between 0 and the smallest
		return r
	}
	return math.Nextafter32(r, toward)
}

// fma32 is a·b + c rounded once in a direction.
func fma32(a, b, c float32, mode rounding) float32 {
	r := canon.FMA32(a, b, c)
	if mode == "rn" {
		return r
	}
	p, z := float64(float64(a)*float64(b)), float64(c)
	s := p + z
	if math.IsInf(float64(a), 0) || math.IsInf(float64(b), 0) || math.IsInf(float64(c), 0) || s != s {
		return r
	}
	if s == 0 && p != 0 && mode == "rm" { // an exact zero of unlike signs
		return float32(math.Copysign(0, -1))
	}
	if p == 0 && z == 0 && math.Signbit(p) != math.Signbit(z) && mode == "rm" {
		return float32(math.Copysign(0, -1))
	}
	t := s - p
	e := (p - (s - t)) + (z - t)
	if math.IsInf(float64(r), 0) {
		return directed(r, 1, mode)
	}
	d := s - float64(r)
	if d == 0 {
		d = e
	}
	return directed(r, d, mode)
}

func div32(a, b float32, mode rounding) float32 {
	r := float32(a / b)
	if mode == "rn" || b == 0 || math.IsInf(float64(a), 0) || math.IsInf(float64(b), 0) || r != r {
		return r
	}
	if math.IsInf(float64(r), 0) {
		return directed(r, 1, mode)
	}
	e := float64(a) - float64(float64(r)*float64(b)) // its sign is exact
	if b < 0 {
		e = -e
	}
	return directed(r, e, mode)
}

func sqrt32(a float32, mode rounding) float32 {
	r := canon.Sqrt(a)
	if mode == "rn" || !(a > 0) || math.IsInf(float64(a), 0) {
		return r
	}
	return directed(r, float64(a)-float64(float64(r)*float64(r)), mode)
}

// takeRounding takes the direction of an arithmetic instruction. Without one the
// assembler may fuse a product with a sum, so one must be written.
func (c *compiler) takeRounding(t typ) (rounding, error) {
	m := rounding(c.takeOf("rn", "rz", "rm", "rp"))
	switch {
	case m == "":
		return "", c.fail("a rounding is missing: write .rn, or the assembler may fuse it with another instruction")
	case t.bits == 64 && m != "rn":
		return "", c.fail(".%s of .f64 is not supported", m)
	case t.bits != 32 && t.bits != 64:
		return "", c.fail("the type %v is not supported", t)
	}
	return m, nil
}

func addF32(d, a, b *v32) {
	for i := range d {
		d[i] = bits32(f32(a[i]) + f32(b[i]))
	}
}

func subF32(d, a, b *v32) {
	for i := range d {
		d[i] = bits32(f32(a[i]) - f32(b[i]))
	}
}

func mulF32(d, a, b *v32) {
	for i := range d {
		d[i] = bits32(float32(f32(a[i]) * f32(b[i])))
	}
}

func fmaF32(d, a, b, c *v32) {
	for i := range d {
		d[i] = bits32(canon.FMA32(f32(a[i]), f32(b[i]), f32(c[i])))
	}
}

func (c *compiler) floatAddSub(t typ, add bool) error {
	mode, err := c.takeRounding(t)
	if err != nil {
		return err
	}
	in := c.n.in
	in.class = Float
	one := float32(1)
	if !add {
		one = -1
	}
	switch {
	case t.bits == 64 && add:
		in.run = each64x2(func(a, b uint64) uint64 { return bits64(f64(a) + f64(b)) })
	case t.bits == 64:
		in.run = each64x2(func(a, b uint64) uint64 { return bits64(f64(a) - f64(b)) })
	case mode != "rn":
		in.run = each32x2(func(a, b uint32) uint32 { return bits32(fma32(one, f32(b), f32(a), mode)) })
	case add:
		in.run = do32x32x32(addF32)
	default:
		in.run = do32x32x32(subF32)
	}
	return c.binary(t)
}

func (c *compiler) floatMul(t typ) error {
	mode, err := c.takeRounding(t)
	if err != nil {
		return err
	}
	c.n.in.class = Float
	switch {
	case t.bits == 64:
		c.n.in.run = each64x2(func(a, b uint64) uint64 { return bits64(float64(f64(a) * f64(b))) })
	case mode != "rn":
		c.n.in.run = each32x2(func(a, b uint32) uint32 {
			x, y := f32(a), f32(b)
			return bits32(fma32(x, y, float32(math.Copysign(0, float64(x)*float64(y))), mode))
		})
	default:
		c.n.in.run = do32x32x32(mulF32)
	}
	return c.binary(t)
}

func buildFma(c *compiler) error {
	t, err := c.takeType()
	if err != nil {
		return err
	}
	return c.floatFMA(t)
}

func (c *compiler) floatFMA(t typ) error {
	if !t.float() {
		return c.fail("the type %v is not supported", t)
	}
	mode, err := c.takeRounding(t)
	if err != nil {
		return err
	}
	c.n.in.class = FMA
	switch {
	case t.bits == 64:
		c.n.in.run = each64x3(func(a, b, e uint64) uint64 { return bits64(math.FMA(f64(a), f64(b), f64(e))) })
	case mode != "rn":
		c.n.in.run = each32x3(func(a, b, e uint32) uint32 { return bits32(fma32(f32(a), f32(b), f32(e), mode)) })
	default:
		c.n.in.run = do32x32x32x32(fmaF32)
	}
	return c.ternary(t)
}

func (c *compiler) floatDiv(t typ) error {
	mode, err := c.takeRounding(t)
	if err != nil {
		return err
	}
	c.n.in.class = Divide
	switch {
	case t.bits == 64:
		c.n.in.run = each64x2(func(a, b uint64) uint64 { return bits64(f64(a) / f64(b)) })
	default:
		c.n.in.run = each32x2(func(a, b uint32) uint32 { return bits32(div32(f32(a), f32(b), mode)) })
	}
	return c.binary(t)
}

func buildRcp(c *compiler) error {
	t, err := c.takeType()
	if err != nil {
		return err
	}
	if !t.float() {
		return c.fail("the type %v is not supported", t)
	}
	mode, err := c.takeRounding(t)
	if err != nil {
		return err
	}
	c.n.in.class = Divide
	if t.bits == 64 {
		c.n.in.run = each64(func(a uint64) uint64 { return bits64(1 / f64(a)) })
	} else {
		c.n.in.run = each32(func(a uint32) uint32 { return bits32(div32(1, f32(a), mode)) })
	}
	return c.unary(t)
}

func buildSqrt(c *compiler) error {
	t, err := c.takeType()
	if err != nil {
		return err
	}
	if !t.float() {
		return c.fail("the type %v is not supported", t)
	}
	mode, err := c.takeRounding(t)
	if err != nil {
		return err
	}
	c.n.in.class = Divide
	if t.bits == 64 {
		c.n.in.run = each64(func(a uint64) uint64 { return bits64(math.Sqrt(f64(a))) })
	} else {
		c.n.in.run = each32(func(a uint32) uint32 { return bits32(sqrt32(f32(a), mode)) })
	}
	return c.unary(t)
}

// lesser is min.f32: a number wins over NaN, and -0 is below +0.
func lesser(a, b uint32) uint32 {
	x, y := f32(a), f32(b)
	switch {
	case x != x && y != y:
		return nan32
	case x != x:
		return b
	case y != y:
		return a
	case x == y:
		return a | b // of ±0 the negative one
	case x < y:
		return a
	}
	return b
}

func greater(a, b uint32) uint32 {
	x, y := f32(a), f32(b)
	switch {
	case x != x && y != y:
		return nan32
	case x != x:
		return b
	case y != y:
		return a
	case x == y:
		return a & b
	case x > y:
		return a
	}
	return b
}

func (c *compiler) floatMinMax(t typ, least bool) error {
	c.n.in.class = Float
	if t.bits == 64 {
		c.n.in.run = each64x2(func(a, b uint64) uint64 {
			x, y := f64(a), f64(b)
			switch {
			case x != x && y != y:
				return nan64
			case x != x:
				return b
			case y != y:
				return a
			case least:
				return bits64(min(x, y))
			}
			return bits64(max(x, y))
		})
		return c.binary(t)
	}
	if least {
		c.n.in.run = do32x32x32(func(d, a, b *v32) {
			for i := range d {
				d[i] = lesser(a[i], b[i])
			}
		})
	} else {
		c.n.in.run = do32x32x32(func(d, a, b *v32) {
			for i := range d {
				d[i] = greater(a[i], b[i])
			}
		})
	}
	return c.binary(t)
}

// buildCopysign takes the sign of the first operand and the value of the second.
func buildCopysign(c *compiler) error {
	t, err := c.takeType()
	if err != nil {
		return err
	}
	c.n.in.class = Float
	switch t {
	case types["f32"]:
		c.n.in.run = each32x2(func(a, b uint32) uint32 { return a&(1<<31) | b&^(1<<31) })
	case types["f64"]:
		c.n.in.run = each64x2(func(a, b uint64) uint64 { return a&(1<<63) | b&^(1<<63) })
	default:
		return c.fail("the type %v is not supported", t)
	}
	return c.binary(t)
}

// buildTestp tells kinds of floats apart.
func buildTestp(c *compiler) error {
	t, err := c.takeType()
	if err != nil {
		return err
	}
	if t != types["f32"] {
		return c.fail("only .f32 is supported")
	}
	test := map[string]func(b uint32) bool{
		"finite":     func(b uint32) bool { return b&0x7f800000 != 0x7f800000 },
		"infinite":   func(b uint32) bool { return b&0x7fffffff == 0x7f800000 },
		"number":     func(b uint32) bool { return b&0x7fffffff <= 0x7f800000 },
		"notanumber": func(b uint32) bool { return b&0x7fffffff > 0x7f800000 },
		"normal":     func(b uint32) bool { return b&0x7f800000 != 0x7f800000 && b&0x7f800000 != 0 },
		"subnormal":  func(b uint32) bool { return b&0x7f800000 == 0 && b&0x7fffffff != 0 },
	}[c.takeOf("finite", "infinite", "number", "notanumber", "normal", "subnormal")]
	if test == nil {
		return c.fail("the test is not supported")
	}
	c.n.in.class = Float
	c.n.in.run = func(w *warp, in *inst, m uint32) {
		var r uint32
		for i, b := range &w.r32[in.a] {
			if test(b) {
				r |= 1 << i
			}
		}
		w.pred[in.d] = w.pred[in.d]&^m | r&m
	}
	if err := c.args(2); err != nil {
		return err
	}
	if err := c.use(c.st.args[1], t, &c.n.in.a); err != nil {
		return err
	}
	return c.def(c.st.args[0], types["pred"], &c.n.in.d)
}

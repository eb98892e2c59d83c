package emu

import (
	"math"
	"math/bits"

	"samebit/internal/canon"
)

// Tensor cores multiply pieces of matrices. They are no part of exact kernels:
// neither PTX nor any manual says in which order and with which rounding they add.

// Sums says how the products of one mma are added to C. Whatever uses mma must
// keep its promises under each of them.
type Sums uint8

const (
	// SumsRising adds one product after the other, from C on, in rising k, every
	// sum rounded to nearest.
	SumsRising Sums = iota
	// SumsFalling adds the products in falling k and C last.
	SumsFalling
	// SumsCut cuts C and all products to the last bit of a float32 that has the
	// exponent of the largest, adds what is left exactly and cuts the sum to float32:
	// the least careful of what was measured on devices.
	SumsCut
	// SumsCutBy4 does so with four products at a time.
	SumsCutBy4
)

// The text of the instructions of tensor cores that are supported.
const (
	mmaBF16    = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
	ldmatrix4  = "ldmatrix.sync.aligned.m8n8.x4.shared.b16"
	ldmatrix4T = "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"
)

// buildMma multiplies [16, 16] by [16, 8] bfloat16 and adds [16, 8] float32. Lane
// 4g + t holds, of A, the pairs of columns 2t and 2t + 8 of rows g and g + 8; of B,
// column g, rows from 2t and 2t + 8; of C, columns 2t and 2t + 1 of rows g and g + 8.
func buildMma(c *compiler) error {
	if c.st.op != mmaBF16 {
		return c.fail("only %s is supported", mmaBF16)
	}
	c.mods = nil
	if err := c.args(4); err != nil {
		return err
	}
	in := c.n.in
	in.class = Matrix
	c.together()
	b32, f := types["b32"], types["f32"]
	var a, b, acc, d [4]*int32
	for i, o := range []struct {
		slots *[4]*int32
		n     int
		t     typ
	}{{&d, 4, f}, {&a, 4, b32}, {&b, 2, b32}, {&acc, 4, f}} {
		v := c.st.args[i]
		if v.kind != opVector || len(v.parts) != o.n {
			return c.fail("operand %d is a vector of %d registers", i, o.n)
		}
		for j, e := range v.parts {
			o.slots[j] = new(int32)
			var err error
			if i == 0 {
				err = c.def(e, o.t, o.slots[j])
			} else {
				err = c.use(e, o.t, o.slots[j])
			}
			if err != nil {
				return err
			}
		}
	}
	in.run = func(w *warp, in *inst, m uint32) {
		if !w.members(in, m) {
			return
		}
		var x, y [16][16]float32 // rows of A, columns of B
		var s [16][8]float32
		for l := range 32 {
			g, t := l/4, l%4*2
			for i := range 4 {
				r, k := g+i%2*8, t+i/2*8
				x[r][k], x[r][k+1] = halves(w.r32[*a[i]][l])
				s[g+i/2*8][t+i%2] = f32(w.r32[*acc[i]][l])
			}
			for i := range 2 {
				y[g][t+8*i], y[g][t+8*i+1] = halves(w.r32[*b[i]][l])
			}
		}
		for r := range s {
			for n := range s[r] {
				s[r][n] = w.b.shares.sums.dot(&x[r], &y[n], s[r][n])
			}
		}
		for l := range 32 {
			for i := range 4 {
				w.r32[*d[i]][l] = bits32(s[l/4+i/2*8][l%4*2+i%2])
			}
		}
	}
	return nil
}

// together makes an instruction wait for all lanes of the warp.
func (c *compiler) together() {
	c.n.sync = true
	c.addUse(c.constant(uint64(full), false), &c.n.in.e)
}

// halves are the two bfloat16 of a register, the lower first.
func halves(w uint32) (lo, hi float32) { return f32(w << 16), f32(w &^ 0xffff) }

// dot is C + Σ a·b of 16 products.
func (s Sums) dot(a, b *[16]float32, c float32) float32 {
	switch s {
	case SumsFalling:
		var t float32
		for k := 15; k >= 0; k-- {
			t = canon.FMA32(a[k], b[k], t)
		}
		return t + c
	case SumsCut:
		return cutSum(a[:], b[:], c)
	case SumsCutBy4:
		for k := 0; k < 16; k += 4 {
			c = cutSum(a[k:k+4], b[k:k+4], c)
		}
		return c
	}
	for k := range a {
		c = canon.FMA32(a[k], b[k], c)
	}
	return c
}

// cutSum is C + Σ a·b with all terms cut to multiples of the last bit of the
// largest.
func cutSum(a, b []float32, c float32) float32 {
	var term [17]float64 // exact
	n := copy(term[:], []float64{float64(c)})
	for k := range a {
		term[n] = float64(a[k]) * float64(b[k])
		n++
	}
	most := 0.0
	for _, t := range term[:n] {
		if t-t != 0 { // infinite or NaN: no bits are to be cut
			s := 0.0
			for _, t := range term[:n] {
				s += t
			}
			return float32(s)
		}
		most = max(most, math.Abs(t))
	}
	if most == 0 {
		return c
	}
	_, e := math.Frexp(most) // most < 2^e
	sum := 0.0
	for _, t := range term[:n] {
		sum += math.Trunc(math.Ldexp(t, 24-e)) // whole numbers below 2^24
	}
	exact := math.Ldexp(sum, e-24)
	r := float32(exact)
	return directed(r, exact-float64(r), "rz")
}

// buildLdmatrix loads four matrices of 8 rows of 8 halves: lane 8i + r has the
// address of row r of matrix i, lane 4r + t gets the pair t of row r of each
// (transposed: rows 2t and 2t + 1 of column r).
func buildLdmatrix(c *compiler) error {
	if c.st.op != ldmatrix4 && c.st.op != ldmatrix4T {
		return c.fail("only %s and %s are supported", ldmatrix4, ldmatrix4T)
	}
	turned := c.st.op == ldmatrix4T
	c.mods = nil
	if err := c.args(2); err != nil {
		return err
	}
	in := c.n.in
	in.class, in.space = Shared, shared
	c.together()
	d := c.st.args[0]
	if d.kind != opVector || len(d.parts) != 4 {
		return c.fail("a vector of 4 registers is wanted")
	}
	for i, e := range d.parts {
		if err := c.def(e, types["b32"], &in.vec[i]); err != nil {
			return err
		}
	}
	in.run = func(w *warp, in *inst, m uint32) {
		if !w.members(in, m) {
			return
		}
		w.addresses(in)
		if !w.aligned(in, m, 16) {
			return
		}
		w.b.count.banks(w, m, 16)
		var row [32][]byte
		for i := range row {
			off, ok := w.sharedSpan(in, i, 16)
			if !ok || !w.noteRead(in, 0, 31, off, 16) { // whatever lane gave the address, others get the bytes
				return
			}
			row[i] = w.b.shared[off : off+16]
		}
		for i := range 4 {
			for l := range 32 {
				r, t := l/4, l%4
				if turned {
					w.r32[in.vec[i]][l] = uint32(le.Uint16(row[8*i+2*t][2*r:])) | uint32(le.Uint16(row[8*i+2*t+1][2*r:]))<<16
				} else {
					w.r32[in.vec[i]][l] = le.Uint32(row[8*i+r][4*t:])
				}
			}
		}
	}
	return c.place(c.st.args[1])
}

// packBF16 is cvt.rn.bf16x2.f32: two floats rounded to nearest, the first above.
func (c *compiler) packBF16() error {
	c.mods = nil
	if err := c.args(3); err != nil {
		return err
	}
	in := c.n.in
	in.class = Move
	for i, p := range []*int32{&in.a, &in.b} {
		if err := c.use(c.st.args[1+i], types["f32"], p); err != nil {
			return err
		}
	}
	in.run = do32x32x32(func(d, a, b *v32) {
		for i := range d {
			d[i] = toBF16(a[i])<<16 | toBF16(b[i])
		}
	})
	return c.def(c.st.args[0], types["b32"], &in.d)
}

// toBF16 rounds a float32 to nearest, ties to even; any NaN is 7fff.
func toBF16(b uint32) uint32 {
	if b&^(1<<31) > 0x7f800000 {
		return 0x7fff
	}
	return (b + 0x7fff + b>>16&1) >> 16
}

// needs80 are instructions that compute on tensor cores or exist for them only:
// targets below sm_80 have none of those, and exact kernels must not.
func needs80(st *stmt) bool {
	return st.words[0] == "mma" || st.words[0] == "ldmatrix" || st.op == "cvt.rn.bf16x2.f32"
}

// capability is the number of .target sm_80, 0 if it is none of this form.
func capability(target string) (n int) {
	if len(target) < 5 || target[:3] != "sm_" {
		return 0
	}
	for _, d := range target[3:] {
		if d < '0' || d > '9' || bits.Len(uint(n)) > 16 {
			return 0
		}
		n = 10*n + int(d-'0')
	}
	return n
}

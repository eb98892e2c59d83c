package main

import (
	"fmt"
	"math"
	"strings"

	"samebit/internal/gen/vec/neon"
)

// Constants of exp live in V16 to V29, the scalar of a call in V31.
var neonConsts = []struct {
	name string
	bits uint32
}{
	{"lo", math.Float32bits(-104)}, {"hi", math.Float32bits(89)},
	{"l2e", 0x3fb8aa3b}, {"magic", 0x4b400000}, {"ln2hi", 0x3f317218}, {"ln2lo", 0xb102e308},
	{"c6", 0x3ab5b4f9}, {"c5", 0x3c091797}, {"c4", 0x3d2aab46}, {"c3", 0x3e2aaa52}, {"c2", 0x3f000000},
	{"one", 0x3f800000}, {"bias", 0x4b400000 - 254}, {"sign", 1 << 31},
}

// Softplus has one input and no scalar: its other constants are in V4 to V9.
var neonLog = []uint32{0x40000000, 0x3e78457c, 0x3e5b95dc, 0x3e928288, 0x3ecccb6c, 0x3f2aaaac} // 2, P4 to P0

func neonReg(name string) int {
	for i, c := range neonConsts {
		if c.name == name {
			return 16 + i
		}
	}
	panic("no constant " + name)
}

type arm struct{ *neon.Writer }

// loop is the NEON form of an elementwise kernel: lengths are multiples of 4;
// body works on the input registers V0... and returns the output registers.
func (w arm) loop(name, outs, ins string, exp bool, scalar bool, body func()) {
	out, in := strings.Fields(outs), strings.Fields(ins)
	args := append([]string{}, out...)
	for _, n := range in {
		if n != out[0] || len(out) > 1 {
			args = append(args, n)
		}
	}
	size := 24 * len(args)
	if scalar {
		size += 4
	}
	w.Line("\n// %s(%s), four values at a time", name, strings.Join(args, ", "))
	w.Line("TEXT ·%sNEON(SB), NOSPLIT, $0-%d", name, size)
	at := map[string]int{}
	for i, n := range args {
		at[n] = 24 * i
	}
	w.I("MOVD %s_len+8(FP), R1", out[0])
	for i, n := range in {
		w.I("MOVD %s_base+%d(FP), R%d", n, at[n], 2+i)
	}
	for i, n := range out {
		w.I("MOVD %s_base+%d(FP), R%d", n, at[n], 2+len(in)+i)
	}
	if scalar {
		w.I("FMOVS s+%d(FP), F31", 24*len(args))
		w.I("VDUP V31.S[0], V31.S4")
	}
	if exp {
		w.I("MOVD $neonconsts<>(SB), R0")
		for i := range neonConsts {
			w.I("VLD1R.P 4(R0), [V%d.S4]", 16+i)
		}
		if name == "softplus" {
			for i := range neonLog {
				w.I("VLD1R.P 4(R0), [V%d.S4]", 4+i)
			}
		}
	}
	w.Line("loop:")
	w.I("CBZ R1, done")
	w.I("SUB $4, R1")
	for i := range in {
		w.I("VLD1.P 16(R%d), [V%d.S4]", 2+i, i)
	}
	body()
	for i := range out {
		w.I("VST1.P [V%d.S4], 16(R%d)", i, 2+len(in)+i)
	}
	w.I("B loop")
	w.Line("done:")
	w.I("RET")
}

// exp is V[x] = exp(V[x]) of numerics.md 4.1; it uses V10 to V13.
func (w arm) exp(x int) {
	c := neonReg
	w.Max(x, x, c("lo"))
	w.Min(x, x, c("hi"))
	w.Move(10, c("magic"))
	w.FMA(10, x, c("l2e"))    // t = x·L2E + MAGIC
	w.Sub(11, 10, c("magic")) // n = t - MAGIC
	w.FNMA(x, 11, c("ln2hi")) // r = x - n·LN2HI
	w.FNMA(x, 11, c("ln2lo")) // r = r - n·LN2LO
	q, p := c("c6"), 12
	for _, name := range []string{"c5", "c4", "c3", "c2", "one", "one"} {
		w.Move(p, c(name))
		w.FMA(p, q, x) // q = q·r + c
		q, p = p, 25-p // V12 and V13 in turn
	}
	w.I("VSUB V%d.S4, V10.S4, V10.S4", c("bias")) // ni + 254
	w.I("VUSHR $1, V10.S4, V11.S4")               // n1 + 127
	w.I("VSUB V11.S4, V10.S4, V10.S4")            // n2 + 127
	w.I("VSHL $23, V11.S4, V11.S4")
	w.I("VSHL $23, V10.S4, V10.S4")
	w.Mul(q, q, 11) // exact
	w.Mul(x, q, 10)
}

// denominator is V[d] = 1 + exp(-V[x]).
func (w arm) denominator(d, x int) {
	w.I("VEOR V%d.B16, V%d.B16, V%d.B16", neonReg("sign"), x, d)
	w.exp(d)
	w.Add(d, d, neonReg("one"))
}

func writeNEON(path, command string) error {
	w := arm{neon.New(command)}
	for i, c := range neonConsts {
		w.Line("DATA neonconsts<>+%d(SB)/4, $0x%08x // %s", 4*i, c.bits, c.name)
	}
	for i, bits := range neonLog {
		w.Line("DATA neonconsts<>+%d(SB)/4, $0x%08x", 4*(len(neonConsts)+i), bits)
	}
	w.Line("GLOBL neonconsts<>(SB), RODATA|NOPTR, $%d", 4*(len(neonConsts)+len(neonLog)))

	w.loop("add", "dst", "a b", false, false, func() { w.Add(0, 0, 1) })
	w.loop("sub", "dst", "a b", false, false, func() { w.Sub(0, 0, 1) })
	w.loop("mul", "dst", "a b", false, false, func() { w.Mul(0, 0, 1) })
	w.loop("scale", "dst", "x", false, true, func() { w.Mul(0, 0, 31) })
	w.loop("divide", "dst", "x", false, true, func() { w.Div(0, 0, 31) })
	w.loop("addSquareMax7", "y", "y x0 x1 x2 x3 x4 x5 x6", false, true, func() {
		w.I("MOVW $0xff800000, R0")
		w.I("VDUP R0, V8.S4")
		for x := 1; x < 8; x++ {
			w.MaxNum(8, x, 9)
		}
		w.Mul(8, 8, 31)
		w.Mul(8, 8, 8)
		w.Add(0, 0, 8)
	})
	w.loop("addScalar", "dst", "x", false, true, func() { w.Add(0, 0, 31) })
	w.loop("fmaScalar", "y", "y x", false, true, func() { w.FMA(0, 1, 31) })
	w.loop("fma", "y", "y a b", false, false, func() { w.FMA(0, 1, 2) })
	w.loop("scaleMul", "dst", "x w", false, true, func() { w.Mul(0, 0, 31); w.Mul(0, 0, 1) })
	w.loop("scaleMulAdd", "dst", "x w b", false, true, func() { w.Mul(0, 0, 31); w.Mul(0, 0, 1); w.Add(0, 0, 2) })
	w.loop("scaleMulSiLU", "dst", "x w z", true, true, func() {
		w.Mul(0, 0, 31)
		w.Mul(0, 0, 1)
		w.denominator(3, 2)
		w.Div(2, 2, 3)
		w.Mul(0, 0, 2) // ((x·r)·w)·silu(z)
	})
	w.loop("exp", "dst", "x", true, false, func() { w.exp(0) })
	w.loop("expSub", "dst", "x", true, true, func() { w.Sub(0, 0, 31); w.exp(0) })
	w.loop("sigmoid", "dst", "x", true, false, func() { w.denominator(1, 0); w.Div(0, neonReg("one"), 1) })
	w.loop("silu", "dst", "x", true, false, func() { w.denominator(1, 0); w.Div(0, 0, 1) })
	w.loop("softplus", "dst", "x", true, false, w.softplus)
	w.loop("swiglu", "dst", "g u", true, false, func() { w.denominator(2, 0); w.Div(0, 0, 2); w.Mul(0, 0, 1) })
	w.loop("sigmoidMul", "dst", "x z", true, false, func() {
		w.denominator(2, 1)
		w.Div(1, neonReg("one"), 2)
		w.Mul(0, 0, 1)
	})
	w.loop("rotate", "lo hi", "a b c s", false, false, func() {
		w.Mul(4, 1, 3)
		w.Mul(5, 0, 3)
		w.I("WORD $0x%08x // V4 = -V4", 0x6ea0f800|4<<5|4)
		w.FMA(4, 0, 2) // lo = a·cos - b·sin
		w.FMA(5, 1, 2) // hi = b·cos + a·sin
		w.Move(0, 4)
		w.Move(1, 5)
	})
	conv := func() {
		w.Zero(9)
		for i := range 4 {
			w.FMA(9, i, 4+i)
		}
		w.Zero(0)
		w.Add(0, 0, 9) // total = +0 + acc
	}
	taps := "x0 x1 x2 x3 w0 w1 w2 w3"
	w.loop("conv4SiLU", "dst", taps, true, false, func() { conv(); w.denominator(1, 0); w.Div(0, 0, 1) })
	w.rows("sumRows", func(acc, x int) { w.Add(acc, acc, x) })
	w.rows("sumSquareRows", func(acc, x int) { w.FMA(acc, x, x) })
	w.rows("maxRows", func(acc, x int) { w.MaxNum(acc, x, 8) })
	return w.Save(path)
}

// softplus is V0 = max(V0, 0) + log1p(exp(-|V0|)), numerics.md 4.3.
func (w arm) softplus() {
	w.I("VORR V%d.B16, V0.B16, V1.B16", neonReg("sign"))
	w.exp(1)       // u
	w.Add(2, 1, 4) // 2 + u
	w.Div(2, 1, 2) // s
	w.Mul(3, 2, 2) // z
	p, q := 5, 14
	for c := 6; c < 10; c++ {
		w.Move(q, c)
		w.FMA(q, p, 3) // p·z + c
		p, q = q, 29-q
	}
	w.Mul(3, 3, p)  // w = z·p
	w.Sub(3, 1, 3)  // u - w
	w.FNMA(1, 2, 3) // u - s·(u - w)
	w.Zero(2)
	w.Max(0, 0, 2) // max(-0, +0) is +0 here
	w.Add(0, 0, 1)
}

// rows folds x, rows of 32 values, into 32 lanes that it loads and stores.
func (w arm) rows(name string, step func(acc, x int)) {
	w.Line("\n// %s(lane, x): lane[i%%32] takes x[i] in rising i; len(x) is a multiple of 32", name)
	w.Line("TEXT ·%sNEON(SB), NOSPLIT, $0-32", name)
	w.I("MOVD lane+0(FP), R0")
	w.I("MOVD x_base+8(FP), R2")
	w.I("MOVD x_len+16(FP), R1")
	list := func(from int) string {
		return fmt.Sprintf("[V%d.S4, V%d.S4, V%d.S4, V%d.S4]", from, from+1, from+2, from+3)
	}
	w.I("VLD1.P 64(R0), %s", list(16))
	w.I("VLD1 (R0), %s", list(20))
	w.Line("loop:")
	w.I("CBZ R1, done")
	w.I("SUB $32, R1")
	w.I("VLD1.P 64(R2), %s", list(0))
	w.I("VLD1.P 64(R2), %s", list(4))
	for i := range 8 {
		step(16+i, i)
	}
	w.I("B loop")
	w.Line("done:")
	w.I("VST1 %s, (R0)", list(20))
	w.I("SUB $64, R0")
	w.I("VST1 %s, (R0)", list(16))
	w.I("RET")
}

package emu

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"samebit/internal/canon"
)

// exponential is exp of a loaded value in PTX, with a byte taken out of a constant.
const exponential = `.version 7.0
.target sm_75
.address_size 64
.visible .entry exponential(.param .u64 exponential_param_0)
{
	.reg .pred %p<3>;
	.reg .b32 %r<13>;
	.reg .f32 %f<20>;
	.reg .b64 %rd<3>;
	ld.param.u64 %rd1, [exponential_param_0];
	cvta.to.global.u64 %rd2, %rd1;
	ld.global.f32 %f1, [%rd2];
	setp.lt.f32 %p1, %f1, 0fC2D00000;
	selp.f32 %f2, 0fC2D00000, %f1, %p1;
	setp.gt.f32 %p2, %f2, 0f42B20000;
	selp.f32 %f3, 0f42B20000, %f2, %p2;
	mov.f32 %f4, 0f4B400000;
	mov.f32 %f5, 0f3FB8AA3B;
	fma.rn.f32 %f6, LIMITED, %f5, %f4;
	sub.rn.f32 %f7, %f6, %f4;
	mov.b32 %r1, %f6;
	add.s32 %r2, %r1, -1262485504;
	mov.f32 %f8, 0fBF317218;
	fma.rn.f32 %f9, %f7, %f8, LIMITED;
	shr.s32 %r3, %r2, 1;
	shl.b32 %r4, %r3, 23;
	sub.s32 %r5, %r2, %r3;
	shl.b32 %r6, %r5, 23;
	mov.u32 %r7, 1258291200;
	prmt.b32 %r8, %r7, %r4, SELECTOR;
	add.s32 %r9, %r8, %r6;
	add.s32 %r10, %r4, 1065353216;
	mov.b32 %f10, %r10;
	mul.rn.f32 %f11, %f9, %f10;
	mov.f32 %f12, 0f3102E308;
	fma.rn.f32 %f13, %f7, %f12, %f9;
	xor.b32 %r11, %r9, 5;
	not.b32 %r12, %r11;
	st.global.u32 [%rd2], %r9;
	st.global.f32 [%rd2], %f11;
	st.global.f32 [%rd2], %f13;
	ret;
}
`

// What is known to mean the same is no mutant, and is one where that is not known:
// of an exp without limits, with the byte chosen.
func TestEqual(t *testing.T) {
	for _, known := range []bool{true, false} {
		limited, selector := "%f3", "12820" // 0x3214
		if !known {
			limited, selector = "%f1", "12816" // 0x3210
		}
		text := strings.NewReplacer("LIMITED", limited, "SELECTOR", selector).Replace(exponential)
		got := map[string]bool{}
		for m := range Mutants(text) {
			what, _, _ := strings.Cut(m.Was, ",")
			got[what+": "+m.What] = true
		}
		if len(got) < 20 {
			t.Fatalf("%d mutants of %s", len(got), text)
		}
		for _, x := range []struct {
			name string
			want bool
		}{
			{"fma.rn.f32 %f9: fma.rn.f32: rounded to zero", !known},
			{"fma.rn.f32 %f9: fma.rn.f32: parted into two roundings", true},
			{"fma.rn.f32 %f6: fma.rn.f32: rounded to zero", true},
			{"sub.rn.f32 %f7: sub.rn.f32: rounded to zero", !known},
			{"sub.rn.f32 %f7: sub.rn.f32: adds", true},
			{"shr.s32 %r3: shr.s32: constant 1 off by one", !known},
			{"shr.s32 %r3: shr.s32: left", true},
			{"mov.u32 %r7: mov.u32: constant 1258291200 off by one", !known},
			{"add.s32 %r2: add.s32: first operand only", false},
			{"add.s32 %r2: add.s32: subtracts", false},
			{"add.s32 %r2: add.s32: second operand only", true},
			{"add.s32 %r9: add.s32: first operand only", true},
			{"mul.rn.f32 %f11: mul.rn.f32: rounded to zero", !known},
			{"mul.rn.f32 %f11: mul.rn.f32: adds", true},
			{"fma.rn.f32 %f13: fma.rn.f32: parted into two roundings", !known},
			{"fma.rn.f32 %f13: fma.rn.f32: rounded to zero", true},
			{"xor.b32 %r11: xor.b32: or", false}, // read by what nothing reads
			{"not.b32 %r12: not.b32: the operand", false},
		} {
			if got[x.name] != x.want {
				t.Errorf("exp with limits: %v: mutant %q: %v, want %v", known, x.name, got[x.name], x.want)
			}
		}
	}
}

// weight is a value of a block in PTX: its factor, which is a half times six bits,
// times a sixteenth, times the upper half of a byte, or another part of it.
const weight = `.version 7.0
.target sm_75
.address_size 64
.visible .entry weight(.param .u64 weight_param_0)
{
	.reg .b16 %rs<2>;
	.reg .b32 %r<12>;
	.reg .f32 %f<20>;
	.reg .b64 %rd<3>;
	ld.param.u64 %rd1, [weight_param_0];
	cvta.to.global.u64 %rd2, %rd1;
	ld.global.u32 %r1, [%rd2];
	ld.global.u32 %r2, [%rd2+4];
	ld.global.f32 %f1, [%rd2+8];
	cvt.u16.u32 %rs1, %r1;
	cvt.f32.f16 %f2, %rs1;
	mov.f32 %f3, 0f4B000000;
	mov.u32 %r3, 1258291200;
	and.b32 %r4, %r1, 1061109567;
	prmt.b32 %r5, %r3, %r4, 12820;
	mov.b32 %f4, %r5;
	sub.rn.f32 %f5, %f4, %f3;
	mul.rn.f32 %f6, %f2, %f5;
	mul.rn.f32 %f7, %f6, 0f3D800000;
	and.b32 %r6, %r2, MASK;
	prmt.b32 %r7, %r3, %r6, 12820;
	mov.b32 %f8, %r7;
	sub.rn.f32 %f9, %f8, %f3;
	fma.rn.f32 %f10, %f7, %f9, %f1;
	mul.rn.f32 %f11, %f7, %f9;
	and.b32 %r8, %r1, BYTES;
	or.b32 %r9, %r8, 12820;
	prmt.b32 %r10, %r3, %r6, %r9;
	mov.b32 %f12, %r10;
	sub.rn.f32 %f13, %f12, %f3;
	mul.rn.f32 %f14, %f7, %f13;
	st.global.f32 [%rd2+8], %f14;
	st.global.f32 [%rd2], %f10;
	st.global.f32 [%rd2+4], %f11;
	ret;
}
`

// A product of 17 and 4 bits rounds in no way, one of 17 and 8 may.
func TestExactProducts(t *testing.T) {
	for mask, exact := range map[string]bool{"-252645136": true, "252645135": true, "-1": false, "-252645121": false} {
		got := map[string]bool{}
		bytes := map[bool]string{true: "3", false: "7"}[exact]
		for m := range Mutants(strings.NewReplacer("MASK", mask, "BYTES", bytes).Replace(weight)) {
			what, _, _ := strings.Cut(m.Was, ",")
			got[what+": "+m.What] = true
		}
		for name, want := range map[string]bool{
			"mul.rn.f32 %f7: mul.rn.f32: rounded to zero":            false,
			"mul.rn.f32 %f11: mul.rn.f32: rounded to zero":           !exact,
			"mul.rn.f32 %f14: mul.rn.f32: rounded to zero":           !exact,
			"sub.rn.f32 %f13: sub.rn.f32: rounded to zero":           !exact, // another byte may be chosen
			"fma.rn.f32 %f10: fma.rn.f32: parted into two roundings": !exact,
			"fma.rn.f32 %f10: fma.rn.f32: rounded to zero":           true,
			"fma.rn.f32 %f10: fma.rn.f32: addend dropped":            true,
			"mul.rn.f32 %f11: mul.rn.f32: first operand only":        true,
		} {
			if got[name] != want {
				t.Errorf("mask %s: mutant %q: %v, want %v", mask, name, got[name], want)
			}
		}
	}
}

// exp's rest of x after multiples of the high part of ln 2 is exact.
func TestExactRest(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	hi, perLog := float64(math.Float32frombits(0x3f317218)), float64(math.Float32frombits(0x3fb8aa3b))
	for range 200000 {
		x := float32(rnd.Float64()*193 - 104)
		if rnd.IntN(2) == 0 {
			x *= float32(math.Ldexp(1, -rnd.IntN(12)))
		}
		rest := float64(x) - math.RoundToEven(float64(x)*perLog)*hi // exact in 53 bits
		if float64(float32(rest)) != rest {
			t.Fatalf("seed 1 2: the rest of %b is %b", x, rest)
		}
	}
}

// Where exp's second rest differs when its product is rounded by itself, exp is the
// same: all arguments of which the product is inexact.
func TestLowRest(t *testing.T) {
	if testing.Short() {
		t.Skip("tries 68 million arguments")
	}
	perLog, hi, lo := float64(math.Float32frombits(0x3fb8aa3b)), float64(math.Float32frombits(0x3f317218)), math.Float32frombits(0x3102e308)
	power := func(r, n float32) float32 {
		q := math.Float32frombits(0x3ab5b4f9)
		for _, c := range [...]uint32{0x3c091797, 0x3d2aab46, 0x3e2aaa52, 0x3f000000, 0x3f800000, 0x3f800000} {
			q = canon.FMA32(q, r, math.Float32frombits(c))
		}
		return float32(math.Ldexp(float64(q), int(n)))
	}
	differ := 0
	for _, limit := range []float32{-104, 89} {
		step := float32(math.Inf(1))
		if limit < 0 {
			step = -step
		}
		from := float32(5.5) // of smaller ones the product has 24 bits
		if limit < 0 {
			from = -from
		}
		for x := from; x != limit; x = math.Nextafter32(x, step) {
			n := math.RoundToEven(float64(x) * perLog)
			r := float32(float64(x) - n*hi)
			fused, parted := canon.FMA32(float32(n), lo, r), float32(float32(n)*lo)+r
			if fused == parted {
				continue
			}
			if differ++; power(fused, float32(n)) != power(parted, float32(n)) {
				t.Fatalf("exp(%v) shows the rounding of the product", x)
			}
		}
	}
	if differ == 0 {
		t.Error("no rest differs: this looks at the wrong arguments")
	}
	t.Logf("%d rests differ", differ)
}

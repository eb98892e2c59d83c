package emu

import (
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"

	"samebit/backend/cuda/driver"
)

// opCase is one instruction and its meaning, written without the emulator's
// helpers. Operands are in %r1.. (32 bits), %l1.. (64), %h1.. (16) and %p1..
// (the low bits of the operands); the result is %r0, %l0, %h0 or %p0.
type opCase struct {
	ptx  string
	want func(a, b, c uint64) uint64
}

func s32(v uint64) int64   { return int64(int32(v)) }
func s16(v uint64) int64   { return int64(int16(v)) }
func u32(v uint64) uint64  { return v & 0xffffffff }
func u16(v uint64) uint64  { return v & 0xffff }
func g32(v uint64) float32 { return math.Float32frombits(uint32(v)) }
func g64(v uint64) float64 { return math.Float64frombits(v) }
func fb(x float32) uint64 {
	if x != x {
		return 0x7fffffff
	}
	return uint64(math.Float32bits(x))
}
func db(x float64) uint64 {
	if x != x {
		return 0xfff8000000000000
	}
	return math.Float64bits(x)
}
func yes(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// exact32 rounds an exact expression of floats once, in a direction.
func exact32(mode big.RoundingMode, special float32, f func(x, y *big.Float) *big.Float, in ...float32) uint64 {
	for _, x := range in {
		if x != x || math.IsInf(float64(x), 0) {
			return fb(special)
		}
	}
	x := f(new(big.Float).SetPrec(600), new(big.Float).SetPrec(600))
	if x.Sign() == 0 {
		return fb(special)
	}
	// Float32 rounds to nearest; other directions are searched from there.
	r, acc := x.Float32()
	if mode != big.ToNearestEven && acc != big.Exact {
		up := mode == big.ToPositiveInf || mode == big.ToZero && x.Sign() < 0
		switch {
		case up && acc == big.Below:
			r = math.Nextafter32(r, float32(math.Inf(1)))
		case !up && acc == big.Above:
			r = math.Nextafter32(r, float32(math.Inf(-1)))
		}
		if r == 0 && x.Sign() < 0 {
			r = float32(math.Copysign(0, -1))
		}
	}
	return fb(r)
}

func fmaExact(mode big.RoundingMode) func(a, b, c uint64) uint64 {
	return func(a, b, c uint64) uint64 {
		x, y, z := g32(a), g32(b), g32(c)
		sum := float32(math.FMA(float64(x), float64(y), float64(z)))
		if sum == 0 && mode == big.ToNegativeInf { // an exact zero of unlike signs is -0
			if p := float64(x) * float64(y); p != 0 || math.Signbit(p) != math.Signbit(float64(z)) {
				sum = float32(math.Copysign(0, -1))
			}
		}
		return exact32(mode, sum, func(s, t *big.Float) *big.Float {
			s.Mul(new(big.Float).SetPrec(600).SetFloat64(float64(x)), t.SetFloat64(float64(y)))
			return s.Add(s, new(big.Float).SetPrec(600).SetFloat64(float64(z)))
		}, x, y, z)
	}
}

var opCases = []opCase{
	{"add.s32 %r0, %r1, %r2", func(a, b, _ uint64) uint64 { return u32(a + b) }},
	{"add.u32 %r0, %r1, -7", func(a, _, _ uint64) uint64 { return u32(a - 7) }},
	{"add.s64 %l0, %l1, %l2", func(a, b, _ uint64) uint64 { return a + b }},
	{"add.s16 %h0, %h1, %h2", func(a, b, _ uint64) uint64 { return u16(a + b) }},
	{"sub.s32 %r0, %r1, %r2", func(a, b, _ uint64) uint64 { return u32(a - b) }},
	{"sub.u64 %l0, %l1, %l2", func(a, b, _ uint64) uint64 { return a - b }},
	{"sub.u16 %h0, %h1, %h2", func(a, b, _ uint64) uint64 { return u16(a - b) }},
	{"mul.lo.s32 %r0, %r1, %r2", func(a, b, _ uint64) uint64 { return u32(a * b) }},
	{"mul.lo.u64 %l0, %l1, %l2", func(a, b, _ uint64) uint64 { return a * b }},
	{"mul.lo.s16 %h0, %h1, %h2", func(a, b, _ uint64) uint64 { return u16(a * b) }},
	{"mul.hi.s32 %r0, %r1, %r2", func(a, b, _ uint64) uint64 { return u32(uint64(s32(a) * s32(b) >> 32)) }},
	{"mul.hi.u32 %r0, %r1, %r2", func(a, b, _ uint64) uint64 { return u32(a) * u32(b) >> 32 }},
	{"mul.hi.u64 %l0, %l1, %l2", func(a, b, _ uint64) uint64 { h, _ := bits.Mul64(a, b); return h }},
	{"mul.hi.s64 %l0, %l1, %l2", func(a, b, _ uint64) uint64 {
		p := new(big.Int).Mul(big.NewInt(int64(a)), big.NewInt(int64(b)))
		return uint64(p.Rsh(p, 64).Int64())
	}},
	{"mul.wide.s32 %l0, %r1, %r2", func(a, b, _ uint64) uint64 { return uint64(s32(a) * s32(b)) }},
	{"mul.wide.u32 %l0, %r1, %r2", func(a, b, _ uint64) uint64 { return u32(a) * u32(b) }},
	{"mul.wide.s16 %r0, %h1, %h2", func(a, b, _ uint64) uint64 { return u32(uint64(s16(a) * s16(b))) }},
	{"mul.wide.u16 %r0, %h1, %h2", func(a, b, _ uint64) uint64 { return u16(a) * u16(b) }},
	{"mad.lo.s32 %r0, %r1, %r2, %r3", func(a, b, c uint64) uint64 { return u32(a*b + c) }},
	{"mad.lo.s64 %l0, %l1, %l2, %l3", func(a, b, c uint64) uint64 { return a*b + c }},
	{"mad.lo.u16 %h0, %h1, %h2, %h3", func(a, b, c uint64) uint64 { return u16(a*b + c) }},
	{"mad.hi.u32 %r0, %r1, %r2, %r3", func(a, b, c uint64) uint64 { return u32(u32(a)*u32(b)>>32 + c) }},
	{"mad.wide.s32 %l0, %r1, %r2, %l3", func(a, b, c uint64) uint64 { return uint64(s32(a)*s32(b)) + c }},
	{"mad.wide.u32 %l0, %r1, %r2, %l3", func(a, b, c uint64) uint64 { return u32(a)*u32(b) + c }},
	{"div.s32 %r0, %r1, %r2", func(a, b, _ uint64) uint64 {
		if u32(b) == 0 {
			return 0xffffffff
		}
		return u32(uint64(s32(a) / s32(b)))
	}},
	{"div.u32 %r0, %r1, 7", func(a, _, _ uint64) uint64 { return u32(a) / 7 }},
	{"div.s64 %l0, %l1, %l2", func(a, b, _ uint64) uint64 {
		if b == 0 {
			return math.MaxUint64
		}
		return uint64(int64(a) / int64(b))
	}},
	{"div.u16 %h0, %h1, 3", func(a, _, _ uint64) uint64 { return u16(a) / 3 }},
	{"rem.s32 %r0, %r1, %r2", func(a, b, _ uint64) uint64 {
		if u32(b) == 0 {
			return u32(a)
		}
		return u32(uint64(s32(a) % s32(b)))
	}},
	{"rem.u64 %l0, %l1, 1000", func(a, _, _ uint64) uint64 { return a % 1000 }},
	{"rem.u32 %r0, %r1, 10", func(a, _, _ uint64) uint64 { return u32(a) % 10 }},
	{"rem.s64 %l0, %l1, -10", func(a, _, _ uint64) uint64 { return uint64(int64(a) % -10) }},
	{"min.s32 %r0, %r1, %r2", func(a, b, _ uint64) uint64 { return u32(uint64(min(s32(a), s32(b)))) }},
	{"min.u32 %r0, %r1, %r2", func(a, b, _ uint64) uint64 { return min(u32(a), u32(b)) }},
	{"max.s64 %l0, %l1, %l2", func(a, b, _ uint64) uint64 { return uint64(max(int64(a), int64(b))) }},
	{"max.u64 %l0, %l1, %l2", func(a, b, _ uint64) uint64 { return max(a, b) }},
	{"max.s32 %r0, %r1, %r2", func(a, b, _ uint64) uint64 { return u32(uint64(max(s32(a), s32(b)))) }},
	{"max.s16 %h0, %h1, %h2", func(a, b, _ uint64) uint64 { return u16(uint64(max(s16(a), s16(b)))) }},
	{"min.u16 %h0, %h1, %h2", func(a, b, _ uint64) uint64 { return min(u16(a), u16(b)) }},
	{"abs.s32 %r0, %r1", func(a, _, _ uint64) uint64 { return u32(uint64(max(s32(a), -s32(a)))) }},
	{"abs.s64 %l0, %l1", func(a, _, _ uint64) uint64 { return max(min(a, -a), 0) }},
	{"abs.s16 %h0, %h1", func(a, _, _ uint64) uint64 { return u16(uint64(max(s16(a), -s16(a)))) }},
	{"neg.s32 %r0, %r1", func(a, _, _ uint64) uint64 { return u32(-a) }},
	{"neg.s64 %l0, %l1", func(a, _, _ uint64) uint64 { return -a }},
	{"neg.s16 %h0, %h1", func(a, _, _ uint64) uint64 { return u16(-a) }},

	{"and.b32 %r0, %r1, %r2", func(a, b, _ uint64) uint64 { return u32(a & b) }},
	{"or.b64 %l0, %l1, %l2", func(a, b, _ uint64) uint64 { return a | b }},
	{"xor.b32 %r0, %r1, %r2", func(a, b, _ uint64) uint64 { return u32(a ^ b) }},
	{"and.b64 %l0, %l1, 4294967295", func(a, _, _ uint64) uint64 { return u32(a) }},
	{"or.b16 %h0, %h1, %h2", func(a, b, _ uint64) uint64 { return u16(a | b) }},
	{"xor.b64 %l0, %l1, %l2", func(a, b, _ uint64) uint64 { return a ^ b }},
	{"or.b32 %r0, %r1, %r2", func(a, b, _ uint64) uint64 { return u32(a | b) }},
	{"not.b32 %r0, %r1", func(a, _, _ uint64) uint64 { return u32(^a) }},
	{"not.b64 %l0, %l1", func(a, _, _ uint64) uint64 { return ^a }},
	{"not.b16 %h0, %h1", func(a, _, _ uint64) uint64 { return u16(^a) }},
	{"and.pred %p0, %p1, %p2", func(a, b, _ uint64) uint64 { return a & b & 1 }},
	{"or.pred %p0, %p1, %p2", func(a, b, _ uint64) uint64 { return (a | b) & 1 }},
	{"xor.pred %p0, %p1, %p2", func(a, b, _ uint64) uint64 { return (a ^ b) & 1 }},
	{"not.pred %p0, %p1", func(a, _, _ uint64) uint64 { return ^a & 1 }},
	{"mov.pred %p0, %p3", func(_, _, c uint64) uint64 { return c & 1 }},
	{"mov.pred %p0, -1", func(_, _, _ uint64) uint64 { return 1 }},
	{"lop3.b32 %r0, %r1, %r2, %r3, 0x96", func(a, b, c uint64) uint64 { return u32(a ^ b ^ c) }},
	{"lop3.b32 %r0, %r1, %r2, %r3, 0xe8", func(a, b, c uint64) uint64 { return u32(a&b | a&c | b&c) }},
	{"lop3.b32 %r0, %r1, %r2, %r3, 0x1a", func(a, b, c uint64) uint64 { return u32((a&b | c) ^ a) }},
	{"shl.b32 %r0, %r1, %r2", func(a, b, _ uint64) uint64 { return u32(u32(a) << u32(b)) }},
	{"shl.b64 %l0, %l1, 3", func(a, _, _ uint64) uint64 { return a << 3 }},
	{"shl.b16 %h0, %h1, 5", func(a, _, _ uint64) uint64 { return u16(a << 5) }},
	{"shr.u32 %r0, %r1, 31", func(a, _, _ uint64) uint64 { return u32(a) >> 31 }},
	{"shr.u32 %r0, %r1, %r2", func(a, b, _ uint64) uint64 { return u32(a) >> u32(b) }},
	{"shr.s32 %r0, %r1, %r2", func(a, b, _ uint64) uint64 { return u32(uint64(s32(a) >> u32(b))) }},
	{"shr.s32 %r0, %r1, 1", func(a, _, _ uint64) uint64 { return u32(uint64(s32(a) >> 1)) }},
	{"shr.s64 %l0, %l1, 33", func(a, _, _ uint64) uint64 { return uint64(int64(a) >> 33) }},
	{"shr.u64 %l0, %l1, %r2", func(a, b, _ uint64) uint64 { return a >> u32(b) }},
	{"shr.s16 %h0, %h1, 3", func(a, _, _ uint64) uint64 { return u16(uint64(s16(a) >> 3)) }},
	{"shf.l.wrap.b32 %r0, %r1, %r2, %r3", func(a, b, c uint64) uint64 { return (u32(b)<<32 | u32(a)) << (c & 31) >> 32 }},
	{"shf.r.clamp.b32 %r0, %r1, %r2, %r3", func(a, b, c uint64) uint64 { return u32((u32(b)<<32 | u32(a)) >> min(u32(c), 32)) }},
	{"prmt.b32 %r0, %r1, %r2, 0x3210", func(a, _, _ uint64) uint64 { return u32(a) }},
	{"prmt.b32 %r0, %r1, %r2, 0x5410", func(a, b, _ uint64) uint64 { return u16(a) | u16(b)<<16 }},
	{"prmt.b32 %r0, %r1, %r2, 0x8887", func(a, b, _ uint64) uint64 {
		return u32(b)>>24 | uint64(uint8(int8(a)>>7))<<8*0x010101
	}},
	{"bfe.u32 %r0, %r1, 5, 7", func(a, _, _ uint64) uint64 { return u32(a) >> 5 & 127 }},
	{"bfe.s32 %r0, %r1, 28, 8", func(a, _, _ uint64) uint64 { return u32(uint64(s32(a) >> 28)) }},
	{"bfe.s32 %r0, %r1, 3, 4", func(a, _, _ uint64) uint64 { return u32(uint64(s32(a) << 25 << 32 >> 32 >> 28 << 32 >> 32)) }},
	{"bfe.u64 %l0, %l1, 40, 60", func(a, _, _ uint64) uint64 { return a >> 40 }},
	{"bfi.b32 %r0, %r1, %r2, 9, 6", func(a, b, _ uint64) uint64 { return u32(b&^(63<<9) | a&63<<9) }},
	{"bfi.b64 %l0, %l1, %l2, 60, 60", func(a, b, _ uint64) uint64 { return b&(1<<60-1) | a<<60 }},
	{"popc.b32 %r0, %r1", func(a, _, _ uint64) uint64 { return uint64(strings.Count(fmt.Sprintf("%b", u32(a)), "1")) }},
	{"popc.b64 %r0, %l1", func(a, _, _ uint64) uint64 { return uint64(strings.Count(fmt.Sprintf("%b", a), "1")) }},
	{"clz.b32 %r0, %r1", func(a, _, _ uint64) uint64 { return uint64(32 - bits.Len32(uint32(a))) }},
	{"clz.b64 %r0, %l1", func(a, _, _ uint64) uint64 { return uint64(64 - bits.Len64(a)) }},
	{"brev.b32 %r0, %r1", func(a, _, _ uint64) uint64 { return uint64(bits.Reverse32(uint32(a))) }},
	{"brev.b64 %l0, %l1", func(a, _, _ uint64) uint64 { return bits.Reverse64(a) }},
	{"bfind.u32 %r0, %r1", func(a, _, _ uint64) uint64 { return u32(uint64(bits.Len32(uint32(a)) - 1)) }},
	{"bfind.s32 %r0, %r1", func(a, _, _ uint64) uint64 {
		v := s32(a)
		return u32(uint64(bits.Len32(uint32(max(v, ^v))) - 1))
	}},
	{"bfind.shiftamt.u32 %r0, %r1", func(a, _, _ uint64) uint64 {
		if u32(a) == 0 {
			return 0xffffffff
		}
		return uint64(bits.LeadingZeros32(uint32(a)))
	}},
	{"bfind.u64 %r0, %l1", func(a, _, _ uint64) uint64 { return u32(uint64(bits.Len64(a) - 1)) }},

	{"add.rn.f32 %r0, %r1, %r2", func(a, b, _ uint64) uint64 { return fb(g32(a) + g32(b)) }},
	{"add.rn.f32 %r0, %r1, 0fBFC00000", func(a, _, _ uint64) uint64 { return fb(g32(a) - 1.5) }},
	{"sub.rn.f32 %r0, %r1, %r2", func(a, b, _ uint64) uint64 { return fb(g32(a) - g32(b)) }},
	{"mul.rn.f32 %r0, %r1, %r2", func(a, b, _ uint64) uint64 { return fb(float32(g32(a) * g32(b))) }},
	{"mul.rn.f64 %l0, %l1, %l2", func(a, b, _ uint64) uint64 { return db(float64(g64(a) * g64(b))) }},
	{"add.rn.f64 %l0, %l1, %l2", func(a, b, _ uint64) uint64 { return db(g64(a) + g64(b)) }},
	{"sub.rn.f64 %l0, %l1, %l2", func(a, b, _ uint64) uint64 { return db(g64(a) - g64(b)) }},
	{"div.rn.f64 %l0, %l1, %l2", func(a, b, _ uint64) uint64 { return db(g64(a) / g64(b)) }},
	{"sqrt.rn.f64 %l0, %l1", func(a, _, _ uint64) uint64 { return db(math.Sqrt(g64(a))) }},
	{"rcp.rn.f64 %l0, %l1", func(a, _, _ uint64) uint64 { return db(1 / g64(a)) }},
	{"fma.rn.f64 %l0, %l1, %l2, %l3", func(a, b, c uint64) uint64 { return db(math.FMA(g64(a), g64(b), g64(c))) }},
	{"fma.rn.f32 %r0, %r1, %r2, %r3", fmaExact(big.ToNearestEven)},
	{"fma.rz.f32 %r0, %r1, %r2, %r3", fmaExact(big.ToZero)},
	{"fma.rp.f32 %r0, %r1, %r2, %r3", fmaExact(big.ToPositiveInf)},
	{"fma.rm.f32 %r0, %r1, %r2, %r3", fmaExact(big.ToNegativeInf)},
	{"add.rz.f32 %r0, %r1, %r2", func(a, b, _ uint64) uint64 { return fmaExact(big.ToZero)(a, 0x3f800000, b) }},
	{"sub.rp.f32 %r0, %r1, %r2", func(a, b, _ uint64) uint64 { return fmaExact(big.ToPositiveInf)(b, 0xbf800000, a) }},
	{"mul.rz.f32 %r0, %r1, %r2", func(a, b, _ uint64) uint64 {
		x, y := g32(a), g32(b)
		return exact32(big.ToZero, float32(x*y), func(s, t *big.Float) *big.Float { return s.Mul(s.SetFloat64(float64(x)), t.SetFloat64(float64(y))) }, x, y)
	}},
	{"div.rn.f32 %r0, %r1, %r2", func(a, b, _ uint64) uint64 { return fb(g32(a) / g32(b)) }},
	{"div.rz.f32 %r0, %r1, %r2", func(a, b, _ uint64) uint64 {
		x, y := g32(a), g32(b)
		if y == 0 {
			return fb(x / y)
		}
		return exact32(big.ToZero, x/y, func(s, t *big.Float) *big.Float { return s.Quo(s.SetFloat64(float64(x)), t.SetFloat64(float64(y))) }, x, y)
	}},
	{"rcp.rn.f32 %r0, %r1", func(a, _, _ uint64) uint64 { return fb(1 / g32(a)) }},
	{"sqrt.rn.f32 %r0, %r1", func(a, _, _ uint64) uint64 { return fb(float32(math.Sqrt(float64(g32(a))))) }},
	{"sqrt.rz.f32 %r0, %r1", func(a, _, _ uint64) uint64 {
		x := g32(a)
		special := float32(math.Sqrt(float64(x)))
		if !(x > 0) {
			return fb(special)
		}
		return exact32(big.ToZero, special, func(s, t *big.Float) *big.Float { return s.Sqrt(t.SetFloat64(float64(x))) }, x)
	}},
	{"min.f32 %r0, %r1, %r2", func(a, b, _ uint64) uint64 { return minmax(a, b, true) }},
	{"max.f32 %r0, %r1, %r2", func(a, b, _ uint64) uint64 { return minmax(a, b, false) }},
	{"abs.f32 %r0, %r1", func(a, _, _ uint64) uint64 { return u32(a) & 0x7fffffff }},
	{"neg.f32 %r0, %r1", func(a, _, _ uint64) uint64 { return u32(a) ^ 0x80000000 }},
	{"neg.f64 %l0, %l1", func(a, _, _ uint64) uint64 { return a ^ 1<<63 }},
	{"copysign.f32 %r0, %r1, %r2", func(a, b, _ uint64) uint64 { return u32(a)&0x80000000 | b&0x7fffffff }},
	{"testp.finite.f32 %p0, %r1", func(a, _, _ uint64) uint64 { x := float64(g32(a)); return yes(x-x == 0) }},
	{"testp.subnormal.f32 %p0, %r1", func(a, _, _ uint64) uint64 {
		x := math.Abs(float64(g32(a)))
		return yes(x > 0 && x < 0x1p-126)
	}},

	{"setp.eq.s32 %p0, %r1, %r2", func(a, b, _ uint64) uint64 { return yes(s32(a) == s32(b)) }},
	{"setp.ne.s32 %p0, %r1, %r2", func(a, b, _ uint64) uint64 { return yes(s32(a) != s32(b)) }},
	{"setp.lt.s32 %p0, %r1, %r2", func(a, b, _ uint64) uint64 { return yes(s32(a) < s32(b)) }},
	{"setp.le.s32 %p0, %r1, %r2", func(a, b, _ uint64) uint64 { return yes(s32(a) <= s32(b)) }},
	{"setp.gt.s32 %p0, %r1, 3", func(a, _, _ uint64) uint64 { return yes(s32(a) > 3) }},
	{"setp.ge.s32 %p0, %r1, %r2", func(a, b, _ uint64) uint64 { return yes(s32(a) >= s32(b)) }},
	{"setp.lt.u32 %p0, %r1, %r2", func(a, b, _ uint64) uint64 { return yes(u32(a) < u32(b)) }},
	{"setp.hi.u32 %p0, %r1, %r2", func(a, b, _ uint64) uint64 { return yes(u32(a) > u32(b)) }},
	{"setp.ls.u32 %p0, %r1, %r2", func(a, b, _ uint64) uint64 { return yes(u32(a) <= u32(b)) }},
	{"setp.eq.b32 %p0, %r1, %r2", func(a, b, _ uint64) uint64 { return yes(u32(a) == u32(b)) }},
	{"setp.lt.s64 %p0, %l1, %l2", func(a, b, _ uint64) uint64 { return yes(int64(a) < int64(b)) }},
	{"setp.ge.u64 %p0, %l1, %l2", func(a, b, _ uint64) uint64 { return yes(a >= b) }},
	{"setp.gt.s64 %p0, %l1, %l2", func(a, b, _ uint64) uint64 { return yes(int64(a) > int64(b)) }},
	{"setp.ne.b64 %p0, %l1, %l2", func(a, b, _ uint64) uint64 { return yes(a != b) }},
	{"setp.lt.s16 %p0, %h1, %h2", func(a, b, _ uint64) uint64 { return yes(s16(a) < s16(b)) }},
	{"setp.gt.u16 %p0, %h1, %h2", func(a, b, _ uint64) uint64 { return yes(u16(a) > u16(b)) }},
	{"setp.ne.s16 %p0, %h1, 0", func(a, _, _ uint64) uint64 { return yes(u16(a) != 0) }},
	{"setp.lt.and.s32 %p0, %r1, %r2, %p3", func(a, b, c uint64) uint64 { return yes(s32(a) < s32(b)) & c & 1 }},
	{"setp.lt.or.s32 %p0, %r1, %r2, !%p3", func(a, b, c uint64) uint64 { return yes(s32(a) < s32(b)) | ^c&1 }},
	{"setp.lt.xor.u32 %p0|%p1, %r1, %r2, %p3", func(a, b, c uint64) uint64 { return yes(u32(a) < u32(b)) ^ c&1 }},
	{"setp.lt.u32 %p1|%p0, %r1, %r2", func(a, b, _ uint64) uint64 { return yes(u32(a) >= u32(b)) }},
	{"setp.eq.f32 %p0, %r1, %r2", func(a, b, _ uint64) uint64 { return yes(g32(a) == g32(b)) }},
	{"setp.ne.f32 %p0, %r1, %r2", func(a, b, _ uint64) uint64 { return yes(g32(a) != g32(b) && !eitherNaN(a, b)) }},
	{"setp.neu.f32 %p0, %r1, %r2", func(a, b, _ uint64) uint64 { return yes(g32(a) != g32(b)) }},
	{"setp.lt.f32 %p0, %r1, %r2", func(a, b, _ uint64) uint64 { return yes(g32(a) < g32(b)) }},
	{"setp.geu.f32 %p0, %r1, %r2", func(a, b, _ uint64) uint64 { return yes(g32(a) >= g32(b) || eitherNaN(a, b)) }},
	{"setp.leu.f32 %p0, %r1, %r2", func(a, b, _ uint64) uint64 { return yes(g32(a) <= g32(b) || eitherNaN(a, b)) }},
	{"setp.gtu.f32 %p0, %r1, %r2", func(a, b, _ uint64) uint64 { return yes(g32(a) > g32(b) || eitherNaN(a, b)) }},
	{"setp.ltu.f32 %p0, %r1, %r2", func(a, b, _ uint64) uint64 { return yes(g32(a) < g32(b) || eitherNaN(a, b)) }},
	{"setp.equ.f32 %p0, %r1, %r2", func(a, b, _ uint64) uint64 { return yes(g32(a) == g32(b) || eitherNaN(a, b)) }},
	{"setp.ge.f32 %p0, %r1, %r2", func(a, b, _ uint64) uint64 { return yes(g32(a) >= g32(b)) }},
	{"setp.gt.f32 %p0, %r1, %r2", func(a, b, _ uint64) uint64 { return yes(g32(a) > g32(b)) }},
	{"setp.le.f32 %p0, %r1, %r2", func(a, b, _ uint64) uint64 { return yes(g32(a) <= g32(b)) }},
	{"setp.nan.f32 %p0, %r1, %r1", func(a, _, _ uint64) uint64 { return yes(eitherNaN(a, a)) }},
	{"setp.num.f32 %p0, %r1, %r2", func(a, b, _ uint64) uint64 { return yes(!eitherNaN(a, b)) }},
	{"setp.gt.f64 %p0, %l1, %l2", func(a, b, _ uint64) uint64 { return yes(g64(a) > g64(b)) }},
	{"set.lt.u32.s32 %r0, %r1, %r2", func(a, b, _ uint64) uint64 { return u32(-yes(s32(a) < s32(b))) }},
	{"set.gt.f32.f32 %r0, %r1, %r2", func(a, b, _ uint64) uint64 { return 0x3f800000 * yes(g32(a) > g32(b)) }},
	{"selp.b32 %r0, %r1, %r2, %p3", func(a, b, c uint64) uint64 { return u32([]uint64{b, a}[c&1]) }},
	{"selp.f32 %r0, 0f3F800000, %r2, %p3", func(_, b, c uint64) uint64 { return u32([]uint64{b, 0x3f800000}[c&1]) }},
	{"selp.u64 %l0, %l1, %l2, %p3", func(a, b, c uint64) uint64 { return []uint64{b, a}[c&1] }},
	{"slct.f32.s32 %r0, %r1, %r2, %r3", func(a, b, c uint64) uint64 { return u32([]uint64{b, a}[yes(s32(c) >= 0)]) }},

	{"mov.u32 %r0, %r1", func(a, _, _ uint64) uint64 { return u32(a) }},
	{"mov.b64 %l0, %l1", func(a, _, _ uint64) uint64 { return a }},
	{"mov.f32 %r0, 0f40490FDB", func(_, _, _ uint64) uint64 { return 0x40490fdb }},
	{"mov.f32 %r0, 1.5", func(_, _, _ uint64) uint64 { return 0x3fc00000 }},
	{"mov.f64 %l0, -1.5", func(_, _, _ uint64) uint64 { return math.Float64bits(-1.5) }},
	{"mov.f64 %l0, 0dC000000000000000", func(_, _, _ uint64) uint64 { return math.Float64bits(-2) }},
	{"mov.u16 %h0, -2", func(_, _, _ uint64) uint64 { return 0xfffe }},
	{"mov.b64 %l0, {%r1, %r2}", func(a, b, _ uint64) uint64 { return u32(a) | b<<32 }},
	{"mov.b32 %r0, {%h1, %h2}", func(a, b, _ uint64) uint64 { return u16(a) | u16(b)<<16 }},
	{"mov.b64 {%r0, %r1}, %l1", func(a, _, _ uint64) uint64 { return u32(a) }},
	{"mov.b64 {%r1, %r0}, %l1", func(a, _, _ uint64) uint64 { return a >> 32 }},
	{"mov.b32 {_, %h0}, %r1", func(a, _, _ uint64) uint64 { return u16(a >> 16) }},
	{"mov.b64 %l0, {%h1, %h2, %h3, %h1}", func(a, b, c uint64) uint64 { return u16(a) | u16(b)<<16 | u16(c)<<32 | u16(a)<<48 }},

	{"cvt.s64.s32 %l0, %r1", func(a, _, _ uint64) uint64 { return uint64(s32(a)) }},
	{"cvt.u64.u32 %l0, %r1", func(a, _, _ uint64) uint64 { return u32(a) }},
	{"cvt.u32.u64 %r0, %l1", func(a, _, _ uint64) uint64 { return u32(a) }},
	{"cvt.s32.s8 %r0, %r1", func(a, _, _ uint64) uint64 { return u32(uint64(int8(a))) }},
	{"cvt.u32.u8 %r0, %l1", func(a, _, _ uint64) uint64 { return a & 255 }},
	{"cvt.s32.s16 %r0, %h1", func(a, _, _ uint64) uint64 { return u32(uint64(s16(a))) }},
	{"cvt.u32.u16 %r0, %h1", func(a, _, _ uint64) uint64 { return u16(a) }},
	{"cvt.u16.u32 %h0, %r1", func(a, _, _ uint64) uint64 { return u16(a) }},
	{"cvt.s8.s32 %r0, %r1", func(a, _, _ uint64) uint64 { return u32(uint64(int8(a))) }},
	{"cvt.sat.u8.s32 %r0, %r1", func(a, _, _ uint64) uint64 { return uint64(min(max(s32(a), 0), 255)) }},
	{"cvt.sat.s16.s64 %r0, %l1", func(a, _, _ uint64) uint64 { return u32(uint64(min(max(int64(a), -32768), 32767))) }},
	{"cvt.rn.f32.s32 %r0, %r1", func(a, _, _ uint64) uint64 { return fb(float32(int32(a))) }},
	{"cvt.rn.f32.u32 %r0, %r1", func(a, _, _ uint64) uint64 { return fb(float32(uint32(a))) }},
	{"cvt.rn.f32.s64 %r0, %l1", func(a, _, _ uint64) uint64 { return fb(float32(int64(a))) }},
	{"cvt.rn.f32.u64 %r0, %l1", func(a, _, _ uint64) uint64 { return fb(float32(a)) }},
	{"cvt.rn.f32.s8 %r0, %r1", func(a, _, _ uint64) uint64 { return fb(float32(int8(a))) }},
	{"cvt.rn.f32.u16 %r0, %h1", func(a, _, _ uint64) uint64 { return fb(float32(u16(a))) }},
	{"cvt.rn.f64.s64 %l0, %l1", func(a, _, _ uint64) uint64 { return db(float64(int64(a))) }},
	{"cvt.rn.f64.u32 %l0, %r1", func(a, _, _ uint64) uint64 { return db(float64(u32(a))) }},
	{"cvt.f64.f32 %l0, %r1", func(a, _, _ uint64) uint64 { return db(float64(g32(a))) }},
	{"cvt.rn.f32.f64 %r0, %l1", func(a, _, _ uint64) uint64 { return fb(float32(g64(a))) }},
	{"cvt.rni.s32.f32 %r0, %r1", func(a, _, _ uint64) uint64 { return toward(a, math.RoundToEven, math.MinInt32, math.MaxInt32) }},
	{"cvt.rzi.s32.f32 %r0, %r1", func(a, _, _ uint64) uint64 { return toward(a, math.Trunc, math.MinInt32, math.MaxInt32) }},
	{"cvt.rmi.s32.f32 %r0, %r1", func(a, _, _ uint64) uint64 { return toward(a, math.Floor, math.MinInt32, math.MaxInt32) }},
	{"cvt.rzi.u32.f32 %r0, %r1", func(a, _, _ uint64) uint64 { return toward(a, math.Trunc, 0, math.MaxUint32) }},
	{"cvt.rpi.u32.f32 %r0, %r1", func(a, _, _ uint64) uint64 { return toward(a, math.Ceil, 0, math.MaxUint32) }},
	{"cvt.rni.f32.f32 %r0, %r1", func(a, _, _ uint64) uint64 { return fb(float32(math.RoundToEven(float64(g32(a))))) }},
	{"cvt.sat.f32.f32 %r0, %r1", func(a, _, _ uint64) uint64 {
		x := g32(a)
		if !(x > 0) {
			return 0
		}
		return fb(min(x, 1))
	}},
	{"cvt.f32.f16 %r0, %h1", func(a, _, _ uint64) uint64 { return fb(halfOf(uint16(a))) }},
}

func eitherNaN(a, b uint64) bool { return g32(a) != g32(a) || g32(b) != g32(b) }

func minmax(a, b uint64, least bool) uint64 {
	x, y := g32(a), g32(b)
	switch {
	case x != x && y != y:
		return 0x7fffffff
	case x != x:
		return u32(b)
	case y != y:
		return u32(a)
	case least:
		return fb(min(x, y))
	}
	return fb(max(x, y))
}

func toward(a uint64, round func(float64) float64, lo, hi float64) uint64 {
	x := float64(g32(a))
	if x != x {
		return 0
	}
	return u32(uint64(int64(min(max(round(x), lo), hi))))
}

// halfOf reads a half from its digits.
func halfOf(h uint16) float32 {
	e, m, s := int(h>>10&31), float64(h&1023)/1024, 1.0
	if h>>15 == 1 {
		s = -1
	}
	switch {
	case e == 31 && m != 0:
		return float32(math.NaN())
	case e == 31:
		return float32(s * math.Inf(1))
	case e == 0:
		return float32(s * m * math.Pow(2, -14))
	}
	return float32(s * (1 + m) * math.Pow(2, float64(e-15)))
}

// opKernel runs an instruction on operands in memory; with guard only in lanes
// whose index is no multiple of three.
func opKernel(ptx string, guard bool) string {
	at := ""
	if guard {
		at = "@%q "
	}
	dest := strings.NewReplacer("{", " ", ",", " ", "|", " ", "}", " ").Replace(ptx)
	finish := ""
	for _, f := range strings.Fields(dest) {
		switch f {
		case "%r0":
			finish = "cvt.u64.u32 %x, %r0;"
		case "%l0":
			finish = "mov.u64 %x, %l0;"
		case "%h0":
			finish = "cvt.u64.u16 %x, %h0;"
		case "%p0":
			finish = "selp.u64 %x, 1, 0, %p0;"
		}
	}
	return `.version 7.0
.target sm_75
.address_size 64
.visible .entry k(.param .u64 to, .param .u64 from, .param .u32 n)
{
	.reg .b16 %h<4>;
	.reg .b32 %r<4>, %t<4>;
	.reg .b64 %l<4>, %to, %from, %x, %off;
	.reg .pred %p<4>, %q, %out;
	ld.param.u32 %t0, [n];
	mov.u32 %t1, %tid.x;
	mov.u32 %t2, %ctaid.x;
	mov.u32 %t3, %ntid.x;
	mad.lo.s32 %t1, %t2, %t3, %t1;
	setp.ge.u32 %out, %t1, %t0;
	@%out ret;
	ld.param.u64 %from, [from];
	mul.wide.u32 %off, %t1, 24;
	add.s64 %from, %from, %off;
	ld.global.u64 %l1, [%from];
	ld.global.u64 %l2, [%from+8];
	ld.global.u64 %l3, [%from+16];
	cvt.u32.u64 %r1, %l1;
	cvt.u32.u64 %r2, %l2;
	cvt.u32.u64 %r3, %l3;
	cvt.u16.u64 %h1, %l1;
	cvt.u16.u64 %h2, %l2;
	cvt.u16.u64 %h3, %l3;
	and.b64 %x, %l1, 1;
	setp.ne.u64 %p1, %x, 0;
	and.b64 %x, %l2, 1;
	setp.ne.u64 %p2, %x, 0;
	and.b64 %x, %l3, 1;
	setp.ne.u64 %p3, %x, 0;
	mov.u32 %r0, 17;
	mov.u64 %l0, 17;
	mov.u16 %h0, 17;
	setp.eq.u32 %p0, %t0, %t0;
	rem.u32 %t2, %t1, 3;
	setp.ne.u32 %q, %t2, 0;
	` + at + ptx + `;
	` + finish + `
	ld.param.u64 %to, [to];
	mul.wide.u32 %off, %t1, 8;
	add.s64 %to, %to, %off;
	st.global.u64 [%to], %x;
	ret;
}
`
}

// operands are triples: all pairs of special values, then random ones.
func operands() []uint64 {
	var special []uint64
	for _, v := range []uint32{0, 1, 2, 3, 31, 32, 33, 0x7fffffff, 0x80000000, 0x80000001, 0xffffffff, 0xfffffff9, 0x3f800000, 0xbf800000, 0x3f800001, 0x34000000, 0x00800000,
		0x007fffff, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc12345, 0x3effffff, 0x3f000000, 0x3fc00000, 0x4b800001, 0x4f000000, 0xcf000000, 0x33800800, 0x3f7ff001} {
		special = append(special, uint64(v), uint64(v)<<32, uint64(v)|uint64(v)<<32)
	}
	r := rand.New(rand.NewPCG(7, 7))
	var out []uint64
	for i, a := range special {
		for j := range 7 {
			out = append(out, a, special[(i*7+j*31)%len(special)], special[r.IntN(len(special))])
		}
	}
	for range 900 {
		a, b, c := r.Uint64(), r.Uint64(), r.Uint64()
		switch r.IntN(4) {
		case 0: // floats that cancel
			f := float32(r.NormFloat64())
			a, b = uint64(math.Float32bits(f)), uint64(math.Float32bits(-f*(1+float32(r.IntN(9))/(1<<22))))
			c = uint64(math.Float32bits(f*f)) ^ uint64(r.IntN(4))
		case 1: // small integers
			a, b, c = uint64(r.IntN(200))-100, uint64(r.IntN(20))-10, uint64(r.IntN(64))
		case 2: // floats around one, and subnormal products
			a = uint64(math.Float32bits(float32(r.Float64()*0x1p-70))) | 0x3ff<<52
			b = uint64(math.Float32bits(float32(r.Float64()*0x1p-70))) | 0x400<<52
			c = uint64(r.IntN(1 << 20))
		}
		out = append(out, a, b, c)
	}
	return out
}

func TestInstructions(t *testing.T) {
	v := operands()
	if testing.Short() {
		v = v[:len(v)/9*3]
	}
	n := len(v) / 3
	for _, c := range opCases {
		for _, guard := range []bool{false, true} {
			b := open(t, Config{Workers: 1}, opKernel(c.ptx, guard))
			to := b.alloc(8 * n)
			var p driver.Params
			p.Ptr(to).Ptr(in(b, v)).Int32(int32(n))
			b.must(b.launch("k", driver.Launch{Grid: dims(uint32(n+95)/96, 1, 1), Block: dims(96, 1, 1)}, &p))
			bad := 0
			for i, got := range out[uint64](b, to, n) {
				want := c.want(v[3*i], v[3*i+1], v[3*i+2])
				if guard && i%3 == 0 {
					want = 17
					if strings.Contains(c.ptx, "%p0") {
						want = 1
					}
				}
				if got != want && bad < 3 {
					bad++
					t.Errorf("%s (guard %v) of %#x %#x %#x is %#x, want %#x", c.ptx, guard, v[3*i], v[3*i+1], v[3*i+2], got, want)
				}
			}
		}
	}
}

// Every half comes back from its float, and floats between two halves go to the
// nearer, ties to even.
func TestHalves(t *testing.T) {
	for h := range 1 << 16 {
		x := halfOf(uint16(h))
		got := toHalf(x)
		if x != x && got == 0x7fff || x == x && got == uint16(h) {
			if f := fromHalf(uint16(h)); fb(f) != fb(x) {
				t.Fatalf("half %04x is %v, want %v", h, f, x)
			}
			continue
		}
		t.Fatalf("half %04x became %v and %04x", h, x, got)
	}
	for h := uint16(0); h < 0x7bff; h++ {
		lo, hi := float64(halfOf(h)), float64(halfOf(h+1))
		mid := float32((lo + hi) / 2)
		even := h + h&1
		if got := toHalf(mid); got != even {
			t.Fatalf("%v, between %04x and its successor, became %04x", mid, h, got)
		}
		if got := toHalf(-math.Nextafter32(mid, 0)); got != h|0x8000 {
			t.Fatalf("just below: %04x", got)
		}
		if got := toHalf(math.Nextafter32(mid, 1e9)); got != h+1 {
			t.Fatalf("just above: %04x", got)
		}
	}
}

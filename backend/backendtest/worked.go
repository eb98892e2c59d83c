package backendtest

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"samebit/backend"
	"samebit/tensor"
	"samebit/tensor/tensortest"
)

// gen is the sequence of the worked examples (docs/numerics.md 14); every value
// is exact.
func gen(a, n int, from ...int) []float32 {
	v := make([]float32, n)
	for i := range v {
		j := i
		if len(from) > 0 {
			j += from[0]
		}
		v[i] = float32((j*7919+a*104729+13)%2048-1024) / 512
	}
	return v
}

func third(v []float32) []float32 {
	for i := range v {
		v[i] /= 3
	}
	return v
}

// bits parses float32 values written as hexadecimal words; a bar is ignored.
func bits(t testing.TB, s string) []float32 {
	t.Helper()
	var v []float32
	for f := range strings.FieldsSeq(strings.ReplaceAll(s, "|", " ")) {
		u, err := strconv.ParseUint(f, 16, 32)
		if err != nil {
			t.Fatal(err)
		}
		v = append(v, math.Float32frombits(uint32(u)))
	}
	return v
}

// Worked runs the worked examples of docs/numerics.md 14 through a device's ops.
func Worked(t *testing.T, dev backend.Device) {
	run := func(name string, f func(e *Env) []string) {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, dev)
			defer e.close()
			var want [][]float32
			for _, s := range f(e) {
				want = append(want, bits(t, s))
			}
			e.check(t, want...)
		})
	}
	run("dot", func(e *Env) []string {
		var want []string
		for k, s := range map[int]string{5: "3f803095", 128: "418ca8ad", 129: "4191b1e9", 256: "420c4356", 257: "420fcc74", 1000: "43064aa7", 4099: "4403f119"} {
			w := e.PackBytes(bytesOf(gen(2, k)), tensor.F32, 1, k)
			e.S.Linear(e.Out(fmt.Sprintf("K=%d", k), 1, 1), e.In(third(gen(1, k)), 1, k), w)
			want = append(want, s)
		}
		tiny := []float32{0x1p-80, 0x1p-80, 0x1p-80}
		w := e.PackBytes(bytesOf([]float32{-0x1p-80, -0x1p-80, -0x1p-80}), tensor.F32, 1, 3)
		e.S.Linear(e.Out("three products that underflow", 1, 1), e.In(tiny, 1, 3), w)
		return append(want, "00000000")
	})
	run("attention", func(e *Env) []string {
		const d = 8
		var want []string
		for _, c := range []struct {
			lo, n int
			out   string
		}{
			{0, 1, "3fa8c000 3f490000 3e810000 be900000 bf508000 bfac8000 bff0c000 3fcb0000"},
			{0, 64, "3f6870a6 3ecfbfeb bdec8315 bf223ca9 bf90488d bfb47806 3fb504f5 3f936aa2"},
			{0, 70, "3f6636a8 3ecb1fc8 bdfc76a6 bf23575a bf8fa747 bfb08073 3fb450db 3f925622"},
			{60, 70, "3f6daf77 3eca5eef be05cdd9 bf2505b1 bf90364f bfaf780a 3fc875a2 3f9917bb"},
		} {
			pages := e.pages(1, 1, d, c.n)
			p := e.S.Plan([]backend.Seg{{Rows: c.n, KV: pages}})
			e.S.PutKV(p, 0, e.In(gen(5, d*c.n), c.n, 1, d), e.In(gen(6, d*c.n), c.n, 1, d))
			p = e.S.Plan([]backend.Seg{{Rows: 1, Slot: c.n - 1, Pos: c.n - 1, KV: pages}})
			window := 0
			if c.lo > 0 {
				window = c.n - c.lo
			}
			e.S.Attention(e.Out(fmt.Sprintf("slots %d to %d", c.lo, c.n), 1, 1, d), e.In(gen(4, d), 1, 1, d), p, 0, math.Float32frombits(0x3eb504f3), window)
			want = append(want, c.out)
		}
		return want
	})
	run("delta rule", func(e *Env) []string {
		out := e.State("state", nil, 1, 1, 4, 2)
		p := e.S.Plan([]backend.Seg{{Rows: 2, DeltaIn: e.Flat(gen(7, 8), 1, 1, 4, 2), DeltaOut: out}})
		e.S.GatedDelta(e.Out("rows", 2, 1, 2), e.In(third(gen(9, 8)), 2, 1, 4), e.In(third(gen(8, 8)), 2, 1, 4), e.In(gen(10, 4), 2, 1, 2),
			e.In([]float32{0.9, 0.8}, 2, 1), e.In([]float32{0.3, 0.7}, 2, 1), p, 0)
		return []string{"3f945b94 3f80764e 3f4146e9 3e27f29c 3e6a0a85 bf40e5df be98834e bfd5e434", "bfcfc980 bfdeb46a | 3ee8f7e7 3f47f606"}
	})
	run("RMSNorm", func(e *Env) []string {
		e.S.RMSNorm(e.Out("dst", 1, 5), e.In(gen(11, 5), 1, 5), e.In(gen(12, 5), 5), 1e-6)
		return []string{"3d01588e bcf8fb06 3ec15323 3fa0b4e3 c01b4ced"}
	})
	run("softmax", func(e *Env) []string {
		e.S.Softmax(e.Out("dst", 1, 5), e.In(gen(13, 5), 1, 5))
		return []string{"3ee368d5 3e856d22 3e1c9186 3db7b979 3d579734"}
	})
	t.Run("RoPE", func(t *testing.T) {
		for _, c := range []struct {
			theta                 float64
			d                     int
			inv, last, cos, sines string
		}{
			{1e6, 128, "3f800000 3f4e4bad 3f263de0 3f05f6ef", "35a68e4c", "3f7b759c bf7f9ce4 bf75e305 3f7dd16a", "3e4001b8 3d612e31 be8e7cd6 3e056958"},
			{1e7, 64, "3f800000 3f1ab32b 3ebaf81b 3e61f835", "3431af44", "3f7b759c bf634db3 bf4967dd 3ed54a62", "3e4001b8 3eeb88cd 3f1e0645 bf68ba9f"},
		} {
			rope, err := backend.NewRoPE(c.theta, c.d, backend.Scaling{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			cos, sin := make([]float32, c.d/2), make([]float32, c.d/2)
			rope.Angles(cos, sin, 32767)
			for _, v := range []struct {
				what, want string
				got        []float32
			}{{"frequencies", c.inv, rope.Inv[:4]}, {"last frequency", c.last, rope.Inv[c.d/2-1:]}, {"cosines", c.cos, cos[:4]}, {"sines", c.sines, sin[:4]}} {
				if d := tensortest.DiffBits(bits(t, v.want), v.got); d != "" {
					t.Errorf("theta %g, width %d, %s: %s", c.theta, c.d, v.what, d)
				}
			}
		}
	})
}

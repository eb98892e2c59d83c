package cuda_test

import (
	"fmt"
	"math"
	"math/big"
	"testing"

	"samebit/backend"
	"samebit/internal/canon"
	"samebit/tensor"
	"samebit/tensor/tensortest"
)

// Of a million arguments of exp hardly one shows how some of its steps are rounded. At
// the following ones every step does, as TestHardExp has it: they were found by trying
// all floats.
var (
	// below -20, so that sums of exponentials of them and of 0 are 1
	hardDown = floats(0xc2784926, 0xc27ace9d, 0xc1a358a4, 0xc2887e70, 0xc28cb579, 0xc24615a5, 0xc1b437e1, 0xc1a88f5a, 0xc1aa7137, 0xc1ca6624,
		0xc2b24dae, 0xc2af23ec, 0xc2af7195) // and three with subnormal results
	// above 20, so that 1 is lost beside their exponentials
	hardUp = floats(0x42a58e13, 0x4246a365, 0x41aeefbc, 0x41e09467, 0x423e76cc, 0x41c51dff, 0x41e61ff7, 0x41a3ef04, 0x41aeb830, 0x41f6c2aa)
	// near 0, so that sums with them differ
	hardNear = floats(0xbeb75480, 0xbea096fe, 0xbec7d6ef, 0xbea315a6, 0xbe8b685f)
)

func floats(bits ...uint32) (v []float32) {
	for _, b := range bits {
		v = append(v, math.Float32frombits(b))
	}
	return v
}

// expWith is exp of numerics.md 4.1 with another FMA in one of its nine.
func expWith(x float32, step int, other func(a, b, c float32) float32) float32 {
	at := 0
	fma := func(a, b, c float32) float32 {
		if at++; at-1 == step {
			return other(a, b, c)
		}
		return canon.FMA32(a, b, c)
	}
	const magic = 0x1.8p+23
	t := fma(x, 0x1.715476p+0, magic)
	n := t - magic
	r := fma(n, -0x1.62e43p-1, x)
	r = fma(n, 0x1.05c61p-29, r)
	q := float32(0x1.6b69f2p-10)
	for _, c := range []float32{0x1.122f2ep-7, 0x1.55568cp-5, 0x1.5554a4p-3, 0.5, 1, 1} {
		q = fma(q, r, c)
	}
	n1 := int(n) >> 1
	return float32(float32(q*pow2(n1)) * pow2(int(n)-n1))
}

func pow2(k int) float32 { return math.Float32frombits(uint32(k+127) << 23) }

// The hard arguments show the rounding of every step. Two are exact, as package emu
// knows of its mutants.
func TestHardExp(t *testing.T) {
	parted := func(a, b, c float32) float32 { return float32(a*b) + c }
	toZero := func(a, b, c float32) float32 {
		exact := func(v float32) *big.Float { return new(big.Float).SetPrec(400).SetFloat64(float64(v)) }
		x := exact(a)
		x.Mul(x, exact(b)).Add(x, exact(c))
		v, _ := new(big.Float).SetPrec(24).SetMode(big.ToZero).Set(x).Float32()
		return v
	}
	for name, list := range map[string][]float32{"down": hardDown, "up": hardUp} {
		for _, x := range list {
			if got, want := expWith(x, -1, nil), canon.Exp(x); got != want {
				t.Fatalf("exp(%v) is %v, that of the test %v", x, want, got)
			}
		}
		for step := range 9 {
			for how, other := range map[string]func(a, b, c float32) float32{"parted": parted, "to zero": toZero} {
				seen := false
				for _, x := range list {
					seen = seen || expWith(x, step, other) != canon.Exp(x)
				}
				if exact := step == 1 && how == "to zero" || step == 2 && how == "parted"; seen == exact {
					t.Errorf("%s: step %d %s is seen: %v", name, step, how, seen)
				}
			}
		}
	}
}

// expForms give exp its hard arguments where ops take it of something that forms
// control, and let every result be seen by itself.
func expForms() []form {
	var l []form
	for _, z := range []struct {
		rows, hq, d int
		kernel      string
	}{{1, 1, 64, "attendBlocks1"}, {1, 4, 64, "attendBlocks4"}, {8, 1, 64, "attendTile1"}, {8, 1, 128, "attendTile2"}, {8, 1, 256, "attendTile4"}} {
		// Scores within a block: slot j has the value 1 in component j, its weight is exp
		// of its key's first component.
		l = append(l, form{"exp/" + z.kernel, []string{z.kernel, "attnScores"}, false, func(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
			k, v := make([]float32, 64*z.d), make([]float32, 64*z.d)
			for j := range 64 {
				v[j*z.d+j] = 1
				if j > 0 {
					k[j*z.d] = hardDown[j%len(hardDown)]
				}
			}
			return r.firstComponents(64, z.rows, z.hq, 1, z.d, k, v)
		}})
		// Factors of blocks: a head's first slots of two blocks have all the weight.
		for _, second := range []bool{false, true} {
			l = append(l, form{fmt.Sprintf("exp of blocks/%s/%v", z.kernel, second), []string{z.kernel}, false, func(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
				slots, heads := 64+z.rows, len(hardDown)
				k, v := make([]float32, slots*heads*z.d), make([]float32, slots*heads*z.d)
				for j := range slots {
					for h, x := range hardDown {
						at := (j*heads + h) * z.d
						if k[at] = -300; j%64 == 0 {
							v[at+j/64], k[at] = 1, 0
							if second == (j > 0) {
								k[at] = x
							}
						}
					}
				}
				return r.firstComponents(slots, z.rows, heads*z.hq, heads, z.d, k, v)
			}})
		}
	}
	for _, window := range []int{0, 100} {
		l = append(l, form{fmt.Sprintf("exp/AttentionGrad/%d", window), []string{"attnGradQ", "attnGradKV"}, false, func(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
			return r.sharpGrad(rnd, func(d [3]tensor.Tensor, dy, y, q, k, v tensor.Tensor, p backend.Plan) {
				r.s.(backend.Grad).AttentionGrad(d[0], d[1], d[2], dy, y, q, k, v, p, 1, window)
			})
		}})
	}
	// Sums of exponentials, of which the gradient takes the logarithm: sequences of three
	// rows, of which the last has only weights of its own. In those of 35 rows the
	// second slot lies behind the 32nd, in those of 67 in another block.
	for _, n := range []int{3, 35, 67} {
		l = append(l, form{fmt.Sprintf("exp/attnStats/%d", n), []string{"attnStats"}, false, func(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
			var q, k, dy []float32
			var cut []int
			for _, x := range hardNear {
				for _, more := range []float32{-0.9, -1.7, -2.3} {
					if n > 64 && more < -1 {
						continue // there are enough
					}
					for _, turned := range []bool{false, true} {
						at := len(k)
						for range n {
							q, k, dy = append(q, 1), append(k, -300), append(dy, 0)
						}
						if k[at], k[at+n-2], k[at+n-1] = 0, x, more; turned {
							k[at], k[at+n-2] = x, 0
						}
						dy[len(dy)-1] = 1
						cut = append(cut, n)
					}
				}
			}
			in := func(v []float32) tensor.Tensor { return r.f32(v, len(v), 1, 1) }
			rows := len(q)
			return r.attentionGrad(rnd, 0, in(dy), in(make([]float32, rows)), in(q), in(k), r.random(rnd, 1, rows, 1, 1), r.segments(cut...), 1, 0)
		}})
	}
	l = append(l, form{"exp/experts", []string{"expertsUp"}, false, func(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
		n := 2 * len(hardUp) // the gate of component i is a hard argument, what it lets through is seen as component i
		weight := func(at func(i, j int) float32) []backend.Weight {
			v := make([]float32, n*n)
			for i := range v {
				v[i] = at(i/n, i%n)
			}
			raw, err := tensor.FromF32(v, n, n)
			r.must(err)
			w, err := r.dev.Pack(raw, backend.UseLinear)
			r.must(err)
			r.t.Cleanup(func() { r.dev.Unpack(w) })
			return []backend.Weight{w}
		}
		gate := weight(func(i, j int) float32 {
			if j > 0 {
				return 0
			}
			return hardUp[i/2] * float32(2*(i%2)-1)
		})
		up := weight(func(i, j int) float32 {
			if j > 0 {
				return 0
			}
			return 1
		})
		down := weight(func(i, j int) float32 {
			if i != j {
				return 0
			}
			return 1
		})
		y := r.f32(nil, 1, n)
		r.s.Experts(y, r.f32(append([]float32{1}, make([]float32, n-1)...), 1, n), r.ints([]int32{0}, 1, 1), r.f32([]float32{1}, 1, 1), gate, up, down)
		return []tensor.Tensor{y}
	}})
	l = append(l, form{"exp/rows", []string{"swiGLU", "sigmoidMul", "addGated", "conv", "gatedRMSNorm", "softmax", "swiGLUGrad", "sigmoidMulGrad", "crossEntropy", "distillKL", "route"}, false,
		func(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
			var x []float32 // of both signs
			for _, v := range hardUp {
				x = append(x, v, -v)
			}
			n := len(x)
			var l []tensor.Tensor
			y := func(dim ...int) tensor.Tensor { l = append(l, r.f32(nil, dim...)); return l[len(l)-1] }
			s, g := r.s, r.s.(backend.Grad)
			in, one := r.f32(x, 2, n/2), r.f32(ones(n), 2, n/2)
			col := func(t tensor.Tensor) tensor.Tensor { return t.Reshape(n, 1) }
			s.SwiGLU(y(2, n/2), in, one)
			s.SigmoidMul(y(2, n/2), one, in)
			s.AddGated(y(n, 1), col(r.f32(make([]float32, n), n)), col(one), col(in))
			s.GatedRMSNorm(y(2, 1, n/2), one.Heads(1, n/2), in.Heads(1, n/2), r.f32(ones(n/2), n/2), 0)
			p := s.Plan([]backend.Seg{{Rows: 2, ConvIn: r.f32(nil, 1, 1, n/2), ConvOut: r.f32(nil, 1, 1, n/2)}})
			taps := r.f32(append(make([]float32, n/2), ones(n/2)...), 2, n/2)
			s.Conv(y(2, n/2), in, taps, p, 0)
			g.SwiGLUGrad(y(2, n/2), y(2, n/2), one, in, one)
			g.SigmoidMulGrad(y(2, n/2), y(2, n/2), one, one, in)
			g.ConvGrad(y(2, n/2), y(2, n/2), one, in, taps, p, 0)
			dz := y(2, 1, n/2)
			g.GatedRMSNormGrad(y(2, 1, n/2), dz, y(n/2), one.Heads(1, n/2), one.Heads(1, n/2), in.Heads(1, n/2), r.f32(ones(n/2), n/2), 0, r.segments(2))
			m := len(hardDown) + 1 // a row that 0 begins
			down := r.f32(append([]float32{0}, hardDown...), 1, m)
			s.Softmax(y(1, m), down)
			g.CrossEntropy(y(1), y(1, m), down, r.ints([]int32{3}, 1), tensor.Tensor{}, 1)
			g.DistillKL(y(1), y(1, m), down, r.f32(make([]float32, m), 1, m), tensor.Tensor{}, 1, 1)
			g.DistillKL(y(1), y(1, m), r.f32(make([]float32, m), 1, m), down, tensor.Tensor{}, 1, 1)
			s.Route(r.ints(make([]int32, m), 1, m), y(1, m), down, m, false)
			return l
		}})
	return l
}

// sharpGrad is a gradient of attention with hard arguments of exp: the weight of row i
// and slot j shows in dv[j][i], its slope in dq[i][1+j].
func (r *rig) sharpGrad(rnd *tensortest.Rand, grad func(d [3]tensor.Tensor, dy, y, q, k, v tensor.Tensor, p backend.Plan)) []tensor.Tensor {
	r.t.Helper()
	const rows, d = 64, 65
	q, k, dy := make([]float32, rows*d), make([]float32, rows*d), make([]float32, rows*d)
	for i := range rows {
		q[i*d], dy[i*d+i], k[i*d+1+i] = 1, 1, 1
		if i > 0 {
			k[i*d] = hardDown[i/4%len(hardDown)] // as a thread has 4 x 4 pairs
		}
	}
	in := func(v []float32) tensor.Tensor { return r.f32(v, rows, 1, d) }
	var whole, to [3]tensor.Tensor
	for i := range to {
		whole[i], to[i] = r.starting(rnd, 0, rows, 1, d)
	}
	grad(to, in(dy), r.random(rnd, 1, rows, 1, d), in(q), in(k), r.random(rnd, 1, rows, 1, d), r.segments(rows))
	return whole[:]
}

func ones(n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = 1
	}
	return v
}

// firstComponents attends with queries that are 1 in their first component and 0 else:
// the last rows of a text of which all keys and values [slots, hkv, d] are given.
func (r *rig) firstComponents(slots, rows, hq, hkv, d int, k, v []float32) []tensor.Tensor {
	r.t.Helper()
	var pages []tensor.Tensor
	for range (slots + backend.Page - 1) / backend.Page {
		pages = append(pages, r.f32(nil, 2, hkv, backend.Page, d))
	}
	p := r.s.Plan([]backend.Seg{{Rows: slots, KV: pages}})
	r.s.PutKV(p, 0, r.f32(k, slots, hkv, d), r.f32(v, slots, hkv, d))
	p = r.s.Plan([]backend.Seg{{Rows: rows, Slot: slots - rows, Pos: slots - rows, KV: pages}})
	one := make([]float32, rows*hq*d)
	for i := 0; i < len(one); i += d {
		one[i] = 1
	}
	q, y, w := r.f32(one, rows, hq, d), r.f32(nil, rows, hq, d), r.f32(nil, rows, hq, slots)
	r.s.Attention(y, q, p, 0, 1, 0)
	r.s.AttnWeights(w, q, p, 0, 1, 0)
	return []tensor.Tensor{y, w}
}

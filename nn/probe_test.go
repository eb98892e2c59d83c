package nn_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"samebit/nn"
	"samebit/tensor"
)

// read waits for the values of x.
func read(c *nn.Ctx, x tensor.Tensor) []float32 {
	raw := make([]byte, 4*x.Len())
	c.Stream.Read(raw, x)
	if c.Stream.Sync() != nil {
		return nil
	}
	v := make([]float32, x.Len())
	for i := range v {
		v[i] = math.Float32frombits(uint32(raw[4*i]) | uint32(raw[4*i+1])<<8 | uint32(raw[4*i+2])<<16 | uint32(raw[4*i+3])<<24)
	}
	return v
}

// TestProbe looks at attention from a probe, which changes nothing.
func TestProbe(t *testing.T) {
	for _, model := range models {
		t.Run(model, func(t *testing.T) {
			g := newRig(t, model, 0)
			s := g.scripts(model)[0]
			r := g.runner(33)
			calls := 0
			r.Ctx().Probe = func(c *nn.Ctx, layer int, q tensor.Tensor, scale float32) {
				calls++
				m := c.Mark()
				defer c.Release(m)
				rows, heads := q.Dim(0), q.Dim(1)
				w := c.Tmp(rows, heads*scriptRows).Heads(heads, scriptRows)
				c.Stream.AttnWeights(w, q, c.Plan, layer, scale, 0)
				v := read(c, w)
				first := c.Plan.Segs()[0].Slot
				for i := 0; i < len(v); i += scriptRows {
					sum, row := 0.0, i/(heads*scriptRows)
					for j, p := range v[i : i+scriptRows] {
						sum += float64(p)
						if j > first+row && p != 0 {
							t.Fatalf("layer %d: row %d sees slot %d", layer, first+row, j)
						}
					}
					if math.Abs(sum-1) > 1e-5 {
						t.Fatalf("layer %d: weights of row %d sum to %v", layer, first+row, sum)
					}
				}
			}
			g.must(r.AppendAll(bg, s.rows[:100], func(i int, l []float32) { g.same("with a probe", l, s.logits[i]) }))
			if calls == 0 {
				t.Error("the probe was never called")
			}
		})
	}
}

// TestWeights compares the weights of a pass with those that a probe asks for; they
// change nothing either.
func TestWeights(t *testing.T) {
	for _, model := range models {
		t.Run(model, func(t *testing.T) {
			g := newRig(t, model, 0)
			s := g.scripts(model)[0]
			r := g.runner(33)
			var got []float32
			calls := 0
			r.Ctx().Weights = func(c *nn.Ctx, _, _ int, w tensor.Tensor) { got = append(got, read(c, w)...) }
			r.Ctx().Probe = func(c *nn.Ctx, layer int, q tensor.Tensor, scale float32) {
				if got == nil {
					return // a layer with a window
				}
				calls++
				m := c.Mark()
				defer c.Release(m)
				slots := c.Plan.Segs()[0].Slot + q.Dim(0)
				w := c.Tmp(q.Dim(0), q.Dim(1)*slots).Heads(q.Dim(1), slots)
				c.Stream.AttnWeights(w, q, c.Plan, layer, scale, 0)
				g.same("weights", got, read(c, w))
				got = nil
			}
			g.must(r.AppendAll(bg, s.rows[:100], func(i int, l []float32) { g.same("with weights", l, s.logits[i]) }))
			if calls == 0 {
				t.Error("there were never weights")
			}
		})
	}
}

// TestKeep holds all memory, as gradients need it.
func TestKeep(t *testing.T) {
	for _, model := range models {
		g := newRig(t, model, 0)
		s := g.scripts(model)[0]
		rec := &recorder{Stream: g.stream}
		c := nn.NewCtx(rec, g.dev)
		defer c.Close()
		c.Keep = true
		st := g.state()
		var inputs []tensor.Tensor
		var before [][]float32
		c.Trace = func(c *nn.Ctx, _ int, x tensor.Tensor) {
			inputs, before = append(inputs, x), append(before, read(c, x))
		}
		for at := 0; at < 90; at += 30 {
			q := []nn.Seq{{State: st, In: s.rows[at : at+30], Want: nn.WantLast}}
			g.must(g.dec.Forward(bg, c, q))
			g.same(model+" keeping everything", q[0].Logits, s.logits[at+29])
		}
		for i, x := range inputs {
			g.same(model+" kept rows", read(c, x), before[i])
		}
		if len(rec.dst) == 0 {
			t.Error("no op was recorded")
		}
		for i, x := range rec.dst {
			g.same(model+", what "+rec.op[i]+" wrote", read(c, x), rec.was[i])
		}
	}
}

// TestConcurrentRunners shares a decoder and a pool among goroutines.
func TestConcurrentRunners(t *testing.T) {
	for _, model := range []string{models[0], models[3]} {
		g := newRig(t, model, 0)
		scripts := g.scripts(model)
		errs := make(chan error, len(scripts))
		for i, s := range scripts {
			go func() {
				errs <- func() error {
					stream, err := g.dev.NewStream()
					if err != nil {
						return err
					}
					defer stream.Close()
					r, err := g.dec.NewRunner(stream, g.pool, nn.RunnerConfig{ChunkRows: 5 + 20*i})
					if err != nil {
						return err
					}
					defer r.Close()
					rnd := rand.New(rand.NewPCG(uint64(i), 3))
					for range 4 {
						if err := r.Rewind(bg, rnd.IntN(r.Len()+1)); err != nil {
							return err
						}
						at, bad := r.Len(), 0
						err := r.AppendAll(bg, s.rows[at:100], func(k int, l []float32) {
							for j := range l {
								if math.Float32bits(l[j]) != math.Float32bits(s.logits[at+k][j]) {
									bad++
								}
							}
						})
						if err == nil && bad > 0 {
							err = errors.New("other bits than alone")
						}
						if err != nil {
							return err
						}
					}
					return nil
				}()
			}()
		}
		for range scripts {
			if err := <-errs; err != nil {
				t.Errorf("%s: %v", model, err)
			}
		}
	}
}

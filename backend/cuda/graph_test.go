package cuda_test

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"samebit/backend"
	"samebit/backend/backendtest"
	"samebit/backend/cuda"
	"samebit/backend/cuda/driver"
	"samebit/backend/cuda/emu"
	"samebit/backend/ref"
	"samebit/tensor"
	"samebit/tensor/tensortest"
)

// captured is a driver that counts the calls of graphs and refuses one kind.
type captured struct {
	driver.Driver
	refuse string
	calls  map[string]int
}

type capturedContext struct {
	driver.Context
	c *captured
}

func (c *captured) Open(i int) (driver.Context, error) {
	ctx, err := c.Driver.Open(i)
	return &capturedContext{ctx, c}, err
}

func (c *capturedContext) call(name string) error {
	if c.c.calls[name]++; name == c.c.refuse {
		return &driver.Error{Call: name, Code: driver.LaunchFailed, Name: "CUDA_ERROR_INJECTED"}
	}
	return nil
}

func (c *capturedContext) BeginCapture(s driver.Stream) error {
	if err := c.call("BeginCapture"); err != nil {
		return err
	}
	return c.Context.BeginCapture(s)
}

func (c *capturedContext) EndCapture(s driver.Stream) (driver.Graph, error) {
	g, err := c.Context.EndCapture(s)
	if late := c.call("EndCapture"); late != nil {
		c.Context.CloseGraph(g)
		return 0, late
	}
	return g, err
}

func (c *capturedContext) Instantiate(g driver.Graph) (driver.Exec, error) {
	if err := c.call("Instantiate"); err != nil {
		return 0, err
	}
	return c.Context.Instantiate(g)
}

func (c *capturedContext) LaunchGraph(s driver.Stream, x driver.Exec) error {
	if err := c.call("LaunchGraph"); err != nil {
		return err
	}
	return c.Context.LaunchGraph(s, x)
}

func (c *capturedContext) Launch(s driver.Stream, f driver.Function, l driver.Launch, p []byte) error {
	c.call("Launch")
	return c.Context.Launch(s, f, l, p)
}

// decoder is a layer that decodes texts with fixed operands, one row of each per pass.
type decoder struct {
	*rig
	hidden, q, k, v, out, logits, best, ids tensor.Tensor
	table, wq, wk, wv, head                 backend.Weight
	norm                                    tensor.Tensor
	rope                                    *backend.RoPE
	segs                                    []backend.Seg
	host                                    []byte
}

func newDecoder(t testing.TB, dev backend.Device, texts int) *decoder {
	t.Helper()
	const c, hq, hkv, d, vocab = 40, 4, 1, 12, 50
	r, rnd := newRig(t, dev), tensortest.NewRand(backendtest.Seed, "decoder")
	w := func(n, k int) backend.Weight { return r.weight(rnd, tensor.BF16, n, k) }
	x := &decoder{rig: r, table: w(vocab, c), wq: w(hq*d, c), wk: w(hkv*d, c), wv: w(hkv*d, c), head: w(vocab, hq*d), norm: r.random(rnd, 1, c),
		rope: &backend.RoPE{Inv: []float32{1, 0.1, 0.01}, Factor: 1},
		ids:  r.ints(make([]int32, texts), texts), best: r.ints(make([]int32, texts), texts), hidden: r.f32(nil, texts, c),
		q: r.f32(nil, texts, hq, d), k: r.f32(nil, texts, hkv, d), v: r.f32(nil, texts, hkv, d), out: r.f32(nil, texts, hq, d), logits: r.f32(nil, texts, vocab)}
	x.host = make([]byte, 4*texts)
	for i := range texts {
		g := backend.Seg{Row: i, Rows: 1, Slot: 30 * i, Pos: 30 * i}
		for range 3 {
			g.KV = append(g.KV, r.f32(nil, 2, hkv, backend.Page, d))
		}
		if n := g.Slot; n > 0 { // a prompt of its own
			p := r.s.Plan([]backend.Seg{{Rows: n, KV: g.KV}})
			r.s.PutKV(p, 0, r.random(rnd, 1, n, hkv, d), r.random(rnd, 1, n, hkv, d))
		}
		x.segs = append(x.segs, g)
	}
	return x
}

// step decodes one token of every text.
func (x *decoder) step() error {
	s, n := x.s, len(x.segs)
	s.Write(x.ids, x.host)
	p := s.Plan(x.segs)
	flat := func(t tensor.Tensor) tensor.Tensor { return t.Reshape(n, t.Len()/n) }
	s.Embed(x.hidden, x.table, x.ids)
	s.RMSNorm(x.hidden, x.hidden, x.norm, 1e-6)
	s.Linear(flat(x.q), x.hidden, x.wq)
	s.Linear(flat(x.k), x.hidden, x.wk)
	s.Linear(flat(x.v), x.hidden, x.wv)
	s.NormRoPE(x.q, x.q, tensor.Tensor{}, 0, x.rope, p)
	s.NormRoPE(x.k, x.k, tensor.Tensor{}, 0, x.rope, p)
	s.PutKV(p, 0, x.k, x.v)
	s.Attention(x.out, x.q, p, 0, 0.3, 0)
	s.Linear(x.logits, flat(x.out), x.head)
	s.ArgMax(x.best, x.logits)
	s.Read(x.host, x.best)
	err := s.Sync()
	for i := range x.segs {
		x.segs[i].Slot++
		x.segs[i].Pos++
	}
	return err
}

// Passes that do the same are graphs, with the bits of single launches; when they
// differ, as every 256 tokens, they are launched and become graphs again.
func TestGraphs(t *testing.T) {
	const texts, passes = 2, 100
	want := newDecoder(t, ref.New(), texts)
	drv := &captured{Driver: emu.New(emu.Config{Workers: 2}), calls: map[string]int{}}
	dev, err := cuda.New(cuda.Config{Driver: drv})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	got := newDecoder(t, dev, texts)
	seen := map[uint32]bool{}
	var launches int
	for i := range passes {
		if i == 3 {
			launches = drv.calls["Launch"]
		}
		want.must(want.step())
		got.must(got.step())
		if !slices.Equal(want.host, got.host) {
			t.Fatalf("pass %d: tokens %v, want %v", i, got.host, want.host)
		}
		seen[binary.LittleEndian.Uint32(got.host)] = true
	}
	if len(seen) < 3 {
		t.Errorf("only %d different tokens: the texts show nothing", len(seen))
	}
	if n := drv.calls["LaunchGraph"]; n != passes-2 {
		t.Errorf("%d graphs in %d passes, want all but the first two", n, passes)
	}
	if n := drv.calls["Launch"]; n != launches {
		t.Errorf("%d launches after the third pass", n-launches)
	}
	if n := drv.calls["Instantiate"]; n != 1 {
		t.Errorf("%d graphs were made, want 1", n)
	}
	// Another number of rows, and back: that of before is still there.
	for _, n := range []int{1, 1, 2, 1, 2} {
		for _, x := range []*decoder{want, got} {
			all := x.segs
			x.segs, x.host = all[:n], x.host[:4*n]
			ids, best := x.ids, x.best
			x.ids, x.best = x.ids.Rows(0, n), x.best.Rows(0, n)
			full := *x
			x.hidden, x.q, x.k, x.v, x.out, x.logits = x.hidden.Rows(0, n), x.q.Rows(0, n), x.k.Rows(0, n), x.v.Rows(0, n), x.out.Rows(0, n), x.logits.Rows(0, n)
			x.must(x.step())
			x.hidden, x.q, x.k, x.v, x.out, x.logits = full.hidden, full.q, full.k, full.v, full.out, full.logits
			x.ids, x.best, x.segs, x.host = ids, best, all, x.host[:4*texts]
		}
		if !slices.Equal(want.host, got.host) {
			t.Fatalf("%d rows: tokens %v, want %v", n, got.host, want.host)
		}
	}
	if n := drv.calls["Instantiate"]; n != 2 {
		t.Errorf("%d graphs were made, want 2", n)
	}
}

// A driver that refuses graphs costs speed only; a graph that fails is an error of
// the stream. Nothing is left over.
func TestGraphsRefused(t *testing.T) {
	for _, call := range []string{"BeginCapture", "EndCapture", "Instantiate", "LaunchGraph"} {
		base := emu.New(emu.Config{Workers: 1})
		ctx, err := base.Open(0)
		if err != nil {
			t.Fatal(err)
		}
		watch := ctx.(*emu.Device)
		t.Run(call, func(t *testing.T) {
			dev, err := cuda.New(cuda.Config{Driver: &captured{Driver: base, refuse: call, calls: map[string]int{}}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { dev.Close() })
			want, got := newDecoder(t, ref.New(), 2), newDecoder(t, dev, 2)
			for i := range 4 {
				want.must(want.step())
				if err := got.step(); err != nil {
					if call == "LaunchGraph" && i == 2 && strings.Contains(err.Error(), "graph") {
						return
					}
					t.Fatal(err)
				}
				if !slices.Equal(want.host, got.host) {
					t.Fatalf("pass %d: tokens %v, want %v", i, got.host, want.host)
				}
			}
			if call == "LaunchGraph" {
				t.Error("a graph that is not launched is no error")
			}
			if slow := dev.Info().Slow; !strings.Contains(slow, "refuses graphs") || !strings.Contains(slow, call) {
				t.Errorf("the device says %q of why it is slow", slow)
			}
		})
		if n := watch.Held(); n != 0 {
			t.Errorf("%s refused: %d objects of the driver were not given back", call, n)
		}
		if err := watch.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A replayed pass allocates nothing here; what the emulator allocates is left out.
func TestGraphsAllocateNothing(t *testing.T) {
	dev, err := cuda.New(cuda.Config{Driver: lazy{emu.New(emu.Config{})}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	x := newDecoder(t, dev, 2)
	for range 3 {
		x.must(x.step())
	}
	if n := testing.AllocsPerRun(10, func() { x.must(x.step()) }); n != 0 {
		t.Errorf("a pass allocates %v times", n)
	}
}

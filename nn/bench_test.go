package nn_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/internal/canon"
	"samebit/nn"
	"samebit/state"
	"samebit/tensor"
)

// shape is a dense model's layer.
type shape struct {
	name                            string
	hidden, heads, kv, d, wide, top int // top: layers, enough of them that no cache holds the weights
}

// BenchmarkStep decodes with layers in real models' shapes, of weights from memory.
// It reports the time and 10⁹ weights/s of the fastest of all layers, which a busy
// machine disturbs less than the mean of the steps.
func BenchmarkStep(b *testing.B) {
	for _, sh := range []shape{{"qwen3-0.6b", 1024, 16, 8, 128, 3072, 8}, {"smollm2-135m", 576, 9, 3, 64, 1536, 30}} {
		for _, dt := range []tensor.DType{tensor.BF16, tensor.Q8_0, tensor.Q4_0, tensor.Q4_K} {
			if dt == tensor.Q4_K && sh.hidden%256 > 0 {
				continue
			}
			for _, threads := range []int{1, 2} {
				b.Run(fmt.Sprintf("%s/%v/threads=%d", sh.name, dt, threads), func(b *testing.B) { benchStep(b, sh, dt, threads) })
			}
		}
	}
}

func benchStep(b *testing.B, sh shape, dt tensor.DType, threads int) {
	dev, err := cpu.New(cpu.Config{Threads: threads})
	if err != nil {
		b.Fatal(err)
	}
	defer dev.Close()
	weights := 0
	matrix := func(n, k int) backend.Weight {
		raw := make([]byte, n*dt.Bytes(k))
		for i := range raw {
			raw[i] = byte(i*7) & 0x3b // small numbers in every type
		}
		t, err := tensor.New(tensor.Bytes(raw), 0, dt, n, k)
		if err != nil {
			b.Fatal(err)
		}
		w, err := dev.Pack(t, backend.UseLinear)
		if err != nil {
			b.Fatal(err)
		}
		weights += n * k
		return w
	}
	norm := func(n int) tensor.Tensor {
		mem, err := dev.Alloc(4 * n)
		if err != nil {
			b.Fatal(err)
		}
		t, err := tensor.New(mem, 0, tensor.F32, n)
		if err != nil {
			b.Fatal(err)
		}
		v, _ := t.F32()
		for i := range v {
			v[i] = 1e-3
		}
		return t
	}
	rope, err := backend.NewRoPE(1e6, sh.d, backend.Scaling{}, nil)
	if err != nil {
		b.Fatal(err)
	}
	dec := &nn.Decoder{Config: nn.Config{Hidden: sh.hidden, Eps: 1e-6}, Shapes: nn.Shapes{KV: state.KVShape{Layers: sh.top, Heads: sh.kv, Dim: sh.d}}}
	dec.NewState = dec.Shapes.NewState(dec.ID)
	for l := range sh.top {
		dec.Blocks = append(dec.Blocks, nn.Block{Norm1: norm(sh.hidden), Norm2: norm(sh.hidden),
			Mix: &nn.Attention{Layer: l, Heads: sh.heads, KV: sh.kv, Dim: sh.d, Eps: 1e-6, RoPE: rope, Scale: canon.InvSqrt(sh.d),
				Q: matrix(sh.heads*sh.d, sh.hidden), K: matrix(sh.kv*sh.d, sh.hidden), V: matrix(sh.kv*sh.d, sh.hidden), O: matrix(sh.hidden, sh.heads*sh.d)},
			FFN: &nn.SwiGLU{Gate: matrix(sh.wide, sh.hidden), Up: matrix(sh.wide, sh.hidden), Down: matrix(sh.hidden, sh.wide)},
		})
	}
	pool, err := state.NewPool(dev, 0)
	if err != nil {
		b.Fatal(err)
	}
	s, err := dev.NewStream()
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	c := nn.NewCtx(s, dev)
	defer c.Close()
	st, err := dec.NewState(pool)
	if err != nil {
		b.Fatal(err)
	}
	defer st.Release()
	seqs := []nn.Seq{{State: st, In: []state.Row{{Vec: make([]float32, sh.hidden)}}, Want: nn.WantLast}}
	for i := range seqs[0].In[0].Vec {
		seqs[0].In[0].Vec[i] = float32(i%7) - 3
	}
	best, last := time.Hour, time.Now()
	c.Trace = func(_ *nn.Ctx, index int, _ tensor.Tensor) {
		now := time.Now()
		if index > 0 {
			best = min(best, now.Sub(last))
		}
		last = now
	}
	for b.Loop() {
		if st.Len() > 32 {
			if _, err := st.Truncate(0); err != nil {
				b.Fatal(err)
			}
		}
		if err := dec.Forward(context.Background(), c, seqs); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(best.Nanoseconds())/1e3, "best-µs/layer")
	b.ReportMetric(float64(weights/sh.top)/float64(best.Nanoseconds()), "bestGw/s")
}

package qcc

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"samebit/backend"
	"samebit/nn"
	"samebit/state"
)

// retrofit replaces the attention of a small dense model by mixers that share its
// weights.
func retrofit(t *testing.T, d *nn.Decoder, dev backend.Device, set func(c *Config)) *nn.Decoder {
	t.Helper()
	own, err := newDevice(dev)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(own.close)
	r := *d
	r.Closers, r.Blocks = nil, append([]nn.Block(nil), d.Blocks...)
	var c Config
	for i := range r.Blocks {
		a := r.Blocks[i].Mix.(*nn.Attention)
		c = RetrofitConfig(d.Hidden, a.Heads, a.KV, a.Dim, 4096)
		c.RoPE = &RoPE{Theta: 1e6} // the table is the model's
		set(&c)
		p, err := NewParams(c, uint64(i))
		if err != nil {
			t.Fatal(err)
		}
		m := &Mixer{Layer: i, Config: c, Q: a.Q, K: a.K, V: a.V, O: a.O, BQ: a.BQ, BK: a.BK, BV: a.BV, BO: a.BO,
			QNorm: a.QNorm, KNorm: a.KNorm, Eps: a.Eps, RoPE: a.RoPE, Gated: a.Gated}
		if err := m.bind(own, p); err != nil {
			t.Fatal(err)
		}
		r.Blocks[i].Mix = m
	}
	r.ID = state.ID(c.Digest())
	r.NewState = func(p *state.Pool) (state.State, error) {
		parts, err := c.parts(p, r.ID, len(r.Blocks))
		return &state.Stack{Parts: parts}, err
	}
	return &r
}

// In a decoder the layer has the bits of full attention as long as the window covers
// the text, and beyond that those of one token at a time however it is cut, batched,
// rewound or saved.
func TestDecoder(t *testing.T) {
	for _, name := range []string{"qwen3-tied-fp32", "qwen2-fp32"} {
		d, pool, runner := model(t, name)
		dev := pool.Device()
		rows := tokens(3, 100, d.Vocab)
		full := runner(d)
		want := appendAll(t, full, rows)
		covered := runner(retrofit(t, d, dev, func(c *Config) {}))
		sameBits(t, name+": a window that covers the text", appendAll(t, covered, rows, 7, 1, 50), want)

		for i, set := range []func(c *Config){
			func(c *Config) { c.Window = 20 },
			func(c *Config) { c.Window, c.Share, c.Sinks = 17, true, 4 },
			func(c *Config) {
				c.Window, c.Exact = 9, &Exact{Sets: 3, Ways: 2, MassMerge: true, Threshold: -9, AdmissionWeight: 1}
			},
		} {
			what := fmt.Sprintf("%s, kind %d", name, i)
			p := retrofit(t, d, dev, set)
			one, two := runner(p), runner(p)
			step := appendAll(t, one, rows, ones(len(rows))...)
			if slicesEqual(step, want) {
				t.Errorf("%s: an archive gives the bits of full attention", what)
			}
			sameBits(t, what+" in chunks", appendAll(t, two, rows, 33, 1, 2, 40), step)
			if err := two.Truncate(context.Background(), 60); err != nil {
				t.Fatal(err)
			}
			sameBits(t, what+" rewound", appendAll(t, two, rows[60:], 5, 30), step)
			var file bytes.Buffer
			if err := one.Save(&file); err != nil {
				t.Fatal(err)
			}
			three := runner(p)
			if err := three.Load(&file); err != nil {
				t.Fatal(err)
			}
			fork, err := two.Fork()
			if err != nil {
				t.Fatal(err)
			}
			more := tokens(8, 6, d.Vocab)
			next := appendAll(t, two, more)
			sameBits(t, what+" saved", appendAll(t, three, more, 1, 1), next)
			sameBits(t, what+" forked", appendAll(t, fork, more, 2), next)
			fork.Close()

			// Two sequences of one pass.
			c := nn.NewCtx(mustStream(t, dev), dev)
			seqs := []nn.Seq{{In: rows[:70], Want: nn.WantLast}, {In: rows, Want: nn.WantLast}}
			for j := range seqs {
				st, err := p.NewState(pool)
				if err != nil {
					t.Fatal(err)
				}
				defer st.Release()
				seqs[j].State = st
			}
			if err := p.Forward(context.Background(), c, seqs); err != nil {
				t.Fatal(err)
			}
			sameBits(t, what+" beside another", seqs[1].Logits, step)
			c.Close()
			c.Stream.Close()
		}
	}
}

func mustStream(t *testing.T, dev backend.Device) backend.Stream {
	t.Helper()
	s, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

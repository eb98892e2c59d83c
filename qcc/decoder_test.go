package qcc

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"samebit/backend"
	"samebit/nn"
)

// retrofit patches a model with a new adapter.
func retrofit(t *testing.T, d *nn.Decoder, dev backend.Device, set func(r *Retrofit)) *Patched {
	t.Helper()
	c, err := ModelConfig(d)
	if err != nil {
		t.Fatal(err)
	}
	r := Retrofit{Config: c, KV: KVRepeat}
	set(&r)
	a, err := NewAdapter(d, r, 7)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Patch(dev, d, a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// In a decoder the layer has the bits of full attention as long as the window covers
// the text, and beyond that those of one token at a time however it is cut, batched,
// rewound or saved.
func TestDecoder(t *testing.T) {
	names := []string{"qwen3-tied-fp32", "qwen35-8l-fp32", "qwen2-fp32"}
	if testing.Short() {
		names = names[:2]
	}
	for _, name := range names {
		d, pool, runner := model(t, name)
		dev := pool.Device()
		rows := tokens(3, 100, d.Vocab)
		full := runner(d)
		want := appendAll(t, full, rows)
		covered := runner(retrofit(t, d, dev, func(r *Retrofit) {}).Decoder)
		sameBits(t, name+": a window that covers the text", appendAll(t, covered, rows, 7, 1, 50), want)

		for i, set := range []func(r *Retrofit){
			func(r *Retrofit) { r.Config.Window = 20 },
			func(r *Retrofit) { r.Config.Window, r.KV, r.Config.Sinks = 17, KVShare, 4 },
			func(r *Retrofit) {
				r.Config.Window, r.Config.Exact = 9, &Exact{Sets: 3, Ways: 2, MassMerge: true, Threshold: -9, AdmissionWeight: 1}
			},
			func(r *Retrofit) { r.Config.Window, r.Config.AddressRank = 20, 3 },
			func(r *Retrofit) {
				r.Config, _ = DeltaConfig(d)
				r.Config.Window, r.Config.Sinks = 17, 2
			},
		} {
			if i == 4 && d.Shapes.Delta.Layers > 0 {
				continue // TestDeltaPatch: it is refused
			}
			what := fmt.Sprintf("%s, kind %d", name, i)
			p := retrofit(t, d, dev, set).Decoder
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

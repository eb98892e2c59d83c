package qcc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/backend/ref"
	"samebit/checkpoint"
	"samebit/nn"
	"samebit/qwen3"
	"samebit/state"
	"samebit/tensor"
)

func TestSelectionTraces(t *testing.T) {
	for _, tr := range readTraces(t, "sel") {
		var c struct {
			Mode                string
			Budget              int
			LexCap              int `json:"lex_cap"`
			Dilate, Pool, Sinks int
			Recent              float64 `json:"recent_fraction"`
		}
		var in struct {
			Queries, Keys *array
			Anchors       []int
		}
		var want struct {
			Scores  *array
			Indices struct{ Data []int }
		}
		tr.decode(t, tr.Config, &c)
		tr.decode(t, tr.Inputs, &in)
		tr.decode(t, tr.Expected, &want)
		cfg := CompileConfig{Budget: c.Budget, LexCap: c.LexCap, Anchors: in.Anchors, Observe: Observe(c.Mode), Dilate: c.Dilate, Pool: c.Pool, Sinks: c.Sinks, Recent: c.Recent}
		scores := observed(t, in.Queries, in.Keys, cfg.Observe)
		var got []float32
		var rows []int
		for _, s := range scores {
			got = append(got, s...)
			l, err := cfg.Select(s)
			if err != nil {
				t.Fatal(err)
			}
			rows = append(rows, l...)
		}
		near(t, tr.ID+" scores", got, want.Scores.f64(), tr.Tolerance.Float32)
		if fmt.Sprint(rows) != fmt.Sprint(want.Indices.Data) {
			t.Errorf("%s: rows %v, want %v", tr.ID, rows, want.Indices.Data)
		}
	}
}

// observed scores keys [H, L, D] by queries [H, G, O, D] of the last O rows, with the
// ops that Compile uses.
func observed(t *testing.T, q, k *array, mode Observe) [][]float32 {
	t.Helper()
	dev := ref.New()
	s, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	h, g, o, n, d := q.Shape[0], q.Shape[1], q.Shape[2], k.Shape[1], k.Shape[2]
	view := func(v []float32, dim ...int) tensor.Tensor {
		x, err := tensor.FromF32(v, dim...)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	var pages []tensor.Tensor
	for range (n + 63) / 64 {
		pages = append(pages, view(make([]float32, 2*h*64*d), 2, h, 64, d))
	}
	keys, kv := k.f32(), make([]float32, n*h*d)
	for j := range n {
		for a := range h {
			copy(kv[(j*h+a)*d:], keys[(a*n+j)*d:(a*n+j+1)*d])
		}
	}
	p := s.Plan([]backend.Seg{{Rows: n, KV: pages}})
	s.PutKV(p, 0, view(kv, n, h, d), view(kv, n, h, d))
	p = s.Plan([]backend.Seg{{Rows: o, Slot: n - o, Pos: n - o, KV: pages}})
	qv, queries := make([]float32, o*h*g*d), q.f32()
	for i := range o {
		for a := range h * g {
			copy(qv[(i*h*g+a)*d:], queries[(a*o+i)*d:(a*o+i+1)*d])
		}
	}
	w := make([]float32, o*h*g*n)
	scale := float32(1 / math.Sqrt(float64(d)))
	if mode == ObserveLast {
		s.AttnScores(view(w, o, h*g, n), view(qv, o, h*g, d), p, 0, scale, 0)
	} else {
		s.AttnWeights(view(w, o, h*g, n), view(qv, o, h*g, d), p, 0, scale, 0)
	}
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	x := &observation{mode: mode, groups: h}
	for i := range o {
		x.add(w[i*h*g*n:(i+1)*h*g*n], n, n)
	}
	return x.result()
}

// model opens a small model of the test data.
func model(t *testing.T, name string) (*nn.Decoder, *state.Pool, func(d *nn.Decoder) *nn.Runner) {
	t.Helper()
	dev, err := cpu.New(cpu.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	name, half := strings.CutSuffix(name, " kv=bf16")
	set, err := checkpoint.Open("../testdata/models/checkpoints/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	cfg, err := qwen3.FromSet(set)
	if err != nil {
		t.Fatal(err)
	}
	d, err := qwen3.Load(context.Background(), dev, cfg, set, qwen3.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	if half {
		if d, err = d.WithKV(tensor.BF16); err != nil {
			t.Fatal(err)
		}
	}
	pool, err := state.NewPool(dev, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	})
	return d, pool, func(d *nn.Decoder) *nn.Runner {
		s, err := dev.NewStream()
		if err != nil {
			t.Fatal(err)
		}
		r, err := d.NewRunner(s, pool, nn.RunnerConfig{ChunkRows: 32})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			r.Close()
			s.Close()
		})
		return r
	}
}

func tokens(from, n, vocab int) []state.Row {
	var l []state.Row
	for i := range n {
		l = append(l, state.Row{Token: int32((from + i*i*7 + i*3) % vocab)})
	}
	return l
}

func appendAll(t *testing.T, r *nn.Runner, rows []state.Row, cuts ...int) []float32 {
	t.Helper()
	for len(rows) > 0 {
		n := len(rows)
		if len(cuts) > 0 {
			n, cuts = min(n, cuts[0]), cuts[1:]
		}
		if err := r.Append(context.Background(), rows[:n]); err != nil {
			t.Fatal(err)
		}
		rows = rows[n:]
	}
	return append([]float32(nil), r.Logits()...)
}

func TestCompile(t *testing.T) {
	for _, name := range []string{"qwen3-tied-fp32", "qwen35-8l-fp32", "qwen3-tied-fp32 kv=bf16"} {
		t.Run(name, func(t *testing.T) {
			d, _, runner := model(t, name)
			prompt, more := tokens(1, 90, d.Vocab), tokens(5, 12, d.Vocab)
			r := runner(d)
			appendAll(t, r, prompt)
			compiled := func(c CompileConfig) *Compiled {
				x, err := Compile(context.Background(), d, r, c)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(x.Snapshot.Release)
				return x
			}
			resume := func(x *Compiled) *nn.Runner {
				q := runner(x.Decoder)
				if err := x.Resume(q); err != nil {
					t.Fatal(err)
				}
				return q
			}
			all := compiled(CompileConfig{Budget: 200, Queries: 8, Observe: ObserveMean})
			few := compiled(CompileConfig{Budget: 20, Queries: 8, Observe: ObserveMax, Anchors: []int{30, 31}, LexCap: 4})
			if n := r.Len(); n != len(prompt) {
				t.Errorf("compiling left %d rows of %d", n, len(prompt))
			}
			a, b, c := resume(all), resume(few), resume(few)
			want := appendAll(t, r, more)
			sameBits(t, "with every row kept", appendAll(t, a, more, 1, 1, 5), want)
			step := appendAll(t, b, more, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
			sameBits(t, "few rows in chunks", appendAll(t, c, more, 5, 7), step)
			if slicesEqual(step, want) {
				t.Error("20 of 90 rows give the logits of all")
			}
			k, _ := state.Part[*state.Kept](b.State())
			if k.Slots() != 24+len(more) || b.Len() != len(prompt)+len(more) {
				t.Errorf("%d slots after %d rows", k.Slots(), b.Len())
			}
			for l := range few.Kept {
				for h, list := range few.Kept[l] {
					if len(list) != 24 || list[0] != 0 || list[23] != 89 || !contains(list, 30) || !contains(list, 31) {
						t.Errorf("layer %d, head %d keeps %v", l, h, list)
					}
				}
			}
			var file bytes.Buffer
			if err := b.Save(&file); err != nil {
				t.Fatal(err)
			}
			e := runner(few.Decoder)
			if err := e.Load(bytes.NewReader(file.Bytes())); err != nil {
				t.Fatal(err)
			}
			last := tokens(9, 3, d.Vocab)
			sameBits(t, "after saving", appendAll(t, e, last), appendAll(t, b, last, 1, 2))
		})
	}
}

func slicesEqual(a, b []float32) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func contains(l []int, x int) bool {
	for _, v := range l {
		if v == x {
			return true
		}
	}
	return false
}

func TestCompileErrors(t *testing.T) {
	d, _, runner := model(t, "qwen3-tied-fp32")
	r := runner(d)
	if _, err := Compile(context.Background(), d, r, CompileConfig{}); !errors.Is(err, ErrShape) {
		t.Errorf("no prompt: %v", err)
	}
	appendAll(t, r, tokens(1, 10, d.Vocab))
	for _, c := range []CompileConfig{{Budget: -1}, {Dilate: 2}, {Observe: "first"}, {Recent: 2}, {Anchors: []int{3, 1}}, {Anchors: []int{10}}, {LexCap: -1}, {Pool: -7}} {
		if _, err := Compile(context.Background(), d, r, c); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %v, want ErrConfig", c, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Compile(ctx, d, r, CompileConfig{}); !errors.Is(err, context.Canceled) || r.Len() != 10 {
		t.Errorf("cancelled: %v, %d rows", err, r.Len())
	}
	d, _, runner = model(t, "qwen3-swa-bias-fp32")
	r = runner(d)
	appendAll(t, r, tokens(1, 10, d.Vocab))
	if _, err := Compile(context.Background(), d, r, CompileConfig{}); !errors.Is(err, ErrConfig) {
		t.Errorf("a sliding window: %v", err)
	}
}

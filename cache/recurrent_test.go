package cache_test

// Faults that other engines had with recurrent states, by the numbers of the list
// they were collected in.

import (
	"bytes"
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/backend/ref"
	"samebit/cache"
	"samebit/nn"
	"samebit/state"
	"samebit/tensor"
)

// stateBytes is everything that a snapshot saves.
func stateBytes(t testing.TB, s state.Snapshot) []byte {
	t.Helper()
	var b bytes.Buffer
	err := s.Save(func(name string, x tensor.Tensor) error {
		raw, _ := x.Raw()
		b.WriteString(name)
		b.Write(raw)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func (q *seq) state(t testing.TB) []byte {
	t.Helper()
	s, err := q.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	return stateBytes(t, s)
}

// Prefill of T-1 rows, kept, restored, and one more row: the logits and the state
// of T rows at once and of T rows one by one. T goes over everything around a
// chunk of 64.
func TestGD01GD02EveryLengthEqualsTheRecurrence(t *testing.T) {
	m := openModel(t, "qwen35-8l-bf16")
	most := 130
	if testing.Short() {
		most = 67
	}
	rows := tokens(31, most)
	ctx := context.Background()
	one := m.seq(t, 1)
	defer one.close()
	r := newRig(t, m, cache.Config{Policy: cache.Policy{Stride: -1, Tail: 1, MinPrefix: -1}})
	for n := 1; n <= most; n++ {
		if err := one.Append(ctx, rows[n-1:n]); err != nil {
			t.Fatal(err)
		}
		want := one.state(t)
		for _, stateLen := range []int{n, n - 1, n} { // computed, restored at n-1, restored at n
			r.q.bits = map[int]uint64{}
			if _, err := r.c.Prefill(ctx, cache.Key{Model: m.dec.ID}, r.q, rows[:n], stateLen); err != nil {
				t.Fatal(err)
			}
			if b, ok := r.q.bits[n-1]; ok && b != one.bits[n-1] {
				t.Fatalf("%d rows: logits differ from those of rows run one by one", n)
			}
			if !bytes.Equal(r.q.state(t), want) {
				t.Fatalf("%d rows: state differs from that of rows run one by one", n)
			}
		}
		if n%40 == 0 { // and all rows at once
			all := m.seq(t, 512)
			if err := all.Append(ctx, rows[:n]); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(all.state(t), want) {
				t.Errorf("%d rows: state of one pass differs", n)
			}
			all.close()
		}
	}
}

// Decay of almost nothing over a whole chunk, in pieces with the state kept in
// between, on two devices.
func TestGD04TinyDecay(t *testing.T) {
	const rows, heads, dk, dv = 64, 2, 5, 7
	rng := rand.New(rand.NewPCG(4, 4))
	vec := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(rng.NormFloat64())
		}
		return v
	}
	q, k, v := vec(rows*heads*dk), vec(rows*heads*dk), vec(rows*heads*dv)
	beta := make([]float32, rows*heads)
	for i := range beta {
		beta[i] = rng.Float32()
	}
	fast, err := cpu.New(cpu.Config{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer fast.Close()
	for _, decay := range []float32{0, 1, 1e-12, math.SmallestNonzeroFloat32, 1e-39, 1 - 1e-6} {
		g := make([]float32, rows*heads)
		for i := range g {
			g[i] = decay
		}
		var want []byte
		for _, dev := range []backend.Device{ref.New(), fast} {
			for _, piece := range []int{1, 64, 13} {
				out, st := gatedDelta(t, dev, piece, q, k, v, g, beta, heads, dk, dv)
				for i, x := range out {
					if x-x != 0 {
						t.Fatalf("decay %g on %s in pieces of %d: output %d is %v", decay, dev.Name(), piece, i, x)
					}
				}
				got := st
				for _, x := range out {
					u := math.Float32bits(x)
					got = append(got, byte(u), byte(u>>8), byte(u>>16), byte(u>>24))
				}
				if want == nil {
					want = got
				}
				if !bytes.Equal(got, want) {
					t.Errorf("decay %g on %s in pieces of %d: other bits than row by row", decay, dev.Name(), piece)
				}
			}
		}
	}
}

// gatedDelta runs the rule in pieces, each from the snapshot that the one before
// left.
func gatedDelta(t *testing.T, dev backend.Device, piece int, q, k, v, g, beta []float32, heads, dk, dv int) ([]float32, []byte) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	pool, err := state.NewPool(dev, 0)
	must(err)
	stream, err := dev.NewStream()
	must(err)
	fresh := func() *state.Delta {
		d, err := state.NewDelta(pool, state.ID{}, state.DeltaShape{Layers: 1, Heads: heads, DK: dk, DV: dv, Taps: 2, Channels: 1})
		must(err)
		return d
	}
	d := fresh()
	rows := len(g) / heads
	out := make([]float32, rows*heads*dv)
	view := func(x []float32, from, to int, dim ...int) tensor.Tensor {
		w := 1
		for _, n := range dim {
			w *= n
		}
		y, err := tensor.FromF32(x[from*w:to*w], append([]int{to - from}, dim...)...)
		must(err)
		return y
	}
	for at := 0; at < rows; at += piece {
		to := min(at+piece, rows)
		seg := backend.Seg{Rows: to - at}
		must(d.Begin(&seg, to-at))
		p := stream.Plan([]backend.Seg{seg})
		stream.GatedDelta(view(out, at, to, heads, dv), view(q, at, to, heads, dk), view(k, at, to, heads, dk), view(v, at, to, heads, dv),
			view(g, at, to, heads), view(beta, at, to, heads), p, 0)
		stream.Write(seg.ConvOut, make([]byte, 4))
		must(stream.Sync())
		d.Commit(to - at)
		s, err := d.Snapshot()
		must(err)
		d.Release()
		d = fresh()
		must(d.Restore(s))
		s.Release()
	}
	s, err := d.Snapshot()
	must(err)
	b := stateBytes(t, s)
	s.Release()
	d.Release()
	must(pool.Close())
	must(stream.Close())
	return out, b
}

// Rows of very different length in one pass, each from a checkpoint of its own,
// against each alone.
func TestGD05RaggedBatch(t *testing.T) {
	m := openModel(t, hybrid)
	ctx := context.Background()
	r := newRig(t, m, cache.Config{Policy: small(16)})
	lens := []int{1, 2, 3, 4, 5, 17, 64, 65, 90}
	pass := make([]nn.Seq, len(lens))
	prompts := make([][]state.Row, len(lens))
	for i, n := range lens {
		q := m.seq(t, 64)
		defer q.close()
		prompts[i] = tokens(40+i, n+3)
		if _, err := r.c.Prefill(ctx, cache.Key{Model: m.dec.ID}, q, prompts[i][:n], n); err != nil {
			t.Fatal(err)
		}
		pass[i] = nn.Seq{State: q.State(), In: prompts[i][n : n+1+i%3], Want: nn.WantAll}
	}
	c := nn.NewCtx(r.q.stream, m.dev)
	defer c.Close()
	if err := m.dec.Forward(ctx, c, pass); err != nil {
		t.Fatal(err)
	}
	for i, n := range lens {
		want := m.run(t, prompts[i][:n+len(pass[i].In)])
		for j := range pass[i].In {
			if bitsOf(pass[i].Logits[j*m.dec.Vocab:(j+1)*m.dec.Vocab]) != want[n+j] {
				t.Errorf("prompt of %d rows: row %d in the batch differs from the row alone", n, j)
			}
		}
	}
}

// Continuous rows, cold and from checkpoints, again and again in new sequences.
func TestGD07ContinuousRows(t *testing.T) {
	m := openModel(t, hybrid)
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(7, 7))
	rows := tokens(60, 40)
	for i := 10; i < 30; i++ {
		rows[i] = state.Row{Token: -1, Vec: make([]float32, m.dec.Hidden)}
		for j := range rows[i].Vec {
			rows[i].Vec[j] = float32(rng.NormFloat64())
		}
	}
	r := newRig(t, m, cache.Config{Policy: small(16), Dir: t.TempDir()})
	var want uint64
	var st []byte
	for i := range 20 {
		q := m.seq(t, 7)
		rep, err := r.c.Prefill(ctx, cache.Key{Model: m.dec.ID}, q, rows, 36)
		if err != nil {
			t.Fatal(err)
		}
		got, s := q.bits[39], q.state(t)
		q.close()
		if i == 0 {
			want, st = got, s
		} else if rep.Outcome != cache.Hit {
			t.Errorf("run %d: %v", i, rep.Outcome)
		}
		if got != want || !bytes.Equal(s, st) {
			t.Fatalf("run %d differs from the first", i)
		}
		if i%5 == 4 {
			if err := r.c.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			r.c.Clear() // the next one comes from the folder
		}
	}
	// One value of one row differs in its last bit: that row is not shared.
	rows[25].Vec = append([]float32(nil), rows[25].Vec...)
	rows[25].Vec[3] = math.Nextafter32(rows[25].Vec[3], 100)
	rep, err := r.c.Prefill(ctx, cache.Key{Model: m.dec.ID}, r.q, rows, 36)
	if err != nil {
		t.Fatal(err)
	}
	if rep.Start > 25 {
		t.Errorf("starts at %d, the vector of row 25 differs", rep.Start)
	}
	if s := r.c.Stats(); s.Promotions == 0 || s.StoreFault != 0 {
		t.Errorf("%+v: nothing came from the folder", s)
	}
}

package qcc

import (
	"context"
	"fmt"
	"math"
	"testing"

	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/backend/ref"
	"samebit/internal/archive"
	"samebit/state"
	"samebit/tensor"
)

// tight is what the float64 build must reach, in units of 1 + |want|.
const tight = 1e-12

// stateFields are what a trace says about the state in the end.
type stateFields struct {
	Seen                   int
	Numerator, Denominator *array
	LastStep               *array `json:"last_step"`
	Step                   int
	LocalKeys              *array `json:"local_keys"`
	LocalValues            *array `json:"local_values"`
	ArchiveKeys            *array `json:"archive_keys"`
	SinkKeys               *array `json:"sink_keys"`
	SinkValues             *array `json:"sink_values"`
	LandmarkKey            *array `json:"landmark_key"`
	LandmarkValue          *array `json:"landmark_value"`
	LandmarkScore          *array `json:"landmark_score"`
	BankKeys               *array `json:"bank_keys"`
	BankValues             *array `json:"bank_values"`
	BankScores             *array `json:"bank_scores"`
	BankAges               *array `json:"bank_ages"`
}

// stream cuts a stream's share out of an array whose first axis is the stream.
func stream(a *array, b int) []float64 {
	if a == nil {
		return nil
	}
	n := len(a.Data) / a.Shape[0]
	return cut(a.f64(), b, n)
}

func TestArchiveTraces64(t *testing.T) {
	for _, tr := range readTraces(t, "arc") {
		var c traceConfig
		var p, in fields
		var want struct {
			Responses *array
			State     stateFields
		}
		tr.decode(t, tr.Config, &c)
		tr.decode(t, tr.Params, &p)
		tr.decode(t, tr.Inputs, &in)
		tr.decode(t, tr.Expected, &want)
		shape := in["keys"].Shape
		var got []float64
		for b := range shape[0] {
			l := newLayer64(&c, p)
			at := func(name string, e, h int) []float64 {
				return cut(cut(cut(in[name].f64(), b, shape[1]*shape[2]*shape[3]), e, shape[2]*shape[3]), h, shape[3])
			}
			for e := range shape[1] {
				for h, a := range l.heads {
					a.Write(e, at("keys", e, h), at("values", e, h))
					r := make([]float64, shape[3])
					a.Read(r, at("queries", e, h), e+1)
					got = append(got, r...)
				}
			}
			checkHeads(t, tr.ID, l.heads, &want.State, b, tight)
		}
		near(t, tr.ID+" responses", got, want.Responses.f64(), tight)
	}
}

func checkHeads(t *testing.T, id string, heads []*archive.Head[float64], s *stateFields, b int, tol float64) {
	t.Helper()
	gather := func(f func(h *archive.Head[float64]) []float64) []float64 {
		var v []float64
		for _, h := range heads {
			v = append(v, f(h)...)
		}
		return v
	}
	for _, f := range []struct {
		name string
		want *array
		get  func(h *archive.Head[float64]) []float64
	}{
		{"numerator", s.Numerator, func(h *archive.Head[float64]) []float64 { return h.Num }},
		{"denominator", s.Denominator, func(h *archive.Head[float64]) []float64 { return h.Den }},
		{"last_step", s.LastStep, func(h *archive.Head[float64]) []float64 {
			var v []float64
			for _, x := range h.Last {
				for range h.S {
					v = append(v, x)
				}
			}
			return v
		}},
		{"landmark_key", s.LandmarkKey, func(h *archive.Head[float64]) []float64 { return h.LandKey }},
		{"landmark_value", s.LandmarkValue, func(h *archive.Head[float64]) []float64 { return h.LandValue }},
		{"landmark_score", s.LandmarkScore, func(h *archive.Head[float64]) []float64 { return h.LandScore }},
	} {
		if f.want != nil {
			near(t, fmt.Sprintf("%s %s of stream %d", id, f.name, b), gather(f.get), stream(f.want, b), tol)
		}
	}
}

// attentionTrace is a trace of a layer, decoded.
type attentionTrace struct {
	*trace
	c      traceConfig
	p      fields
	hidden *array
	hint   *array
	splits []int
	at     []int // positions with an expected output; nil: all
	want   struct {
		Output      *array
		State       stateFields
		Reads       int
		ChunkOutput *array `json:"chunk_output"`
	}
}

func attentionTraces(t *testing.T) []*attentionTrace {
	var l []*attentionTrace
	for _, tr := range readTraces(t, "att") {
		a := &attentionTrace{trace: tr}
		tr.decode(t, tr.Config, &a.c)
		tr.decode(t, tr.Params, &a.p)
		tr.decode(t, tr.Expected, &a.want)
		var in struct {
			Hidden, Hint *array
			Splits       []int
			Seed, Length int
			Positions    []int
		}
		tr.decode(t, tr.Inputs, &in)
		a.hidden, a.hint, a.splits, a.at = in.Hidden, in.Hint, in.Splits, in.Positions
		if a.hidden == nil {
			a.hidden = generated(in.Seed, in.Length, a.c.DModel)
		}
		l = append(l, a)
	}
	return l
}

// generated is the input generator of the long traces.
func generated(seed, rows, width int) *array {
	a := &array{Shape: []int{1, rows, width}}
	s := uint64(seed)
	for range rows * width {
		s = (1103515245*s + 12345) % (1 << 31)
		x := float64((s>>16)%2048)/1024 - 1
		a.Data = append(a.Data, &x)
	}
	return a
}

// pick keeps the rows of one stream's output that a trace speaks of.
func (a *attentionTrace) pick(out []float64) []float64 {
	if a.at == nil {
		return out
	}
	var v []float64
	for _, p := range a.at {
		v = append(v, cut(out, p, a.c.DModel)...)
	}
	return v
}

func TestAttentionTraces64(t *testing.T) {
	for _, a := range attentionTraces(t) {
		if testing.Short() && a.at != nil {
			continue
		}
		tol := tight
		if a.at != nil { // 3,000 tokens
			tol = a.Tolerance.Float64
		}
		d := a.c.DModel
		var got, chunk []float64
		for b := range a.hidden.Shape[0] {
			x, hint := stream(a.hidden, b), stream(a.hint, b)
			run := func(fresh bool) (*layer64, []float64) {
				l := newLayer64(&a.c, a.p)
				l.fresh = fresh
				var out []float64
				for i := range a.hidden.Shape[1] {
					out = append(out, l.token(cut(x, i, d), cut(hint, i, d))...)
				}
				return l, a.pick(out)
			}
			l, out := run(false)
			got = append(got, out...)
			if a.want.ChunkOutput != nil {
				if l.reads != a.want.Reads {
					t.Errorf("%s: %d reads, want %d", a.ID, l.reads, a.want.Reads)
				}
				_, out = run(true)
				chunk = append(chunk, out...)
			}
			checkHeads(t, a.ID, l.heads, &a.want.State, b, tol)
			checkTables(t, a.ID, l.table, &a.want.State, b)
		}
		near(t, a.ID+" output", got, a.want.Output.f64(), tol)
		if chunk != nil {
			near(t, a.ID+" chunk output", chunk, a.want.ChunkOutput.f64(), tol)
		}
	}
}

// sameOrder compares ages. Those of the traces count the events that some head of
// some stream of the batch admitted; ours count all events of the stream, so that
// they do not depend on company. They agree in what is older than what.
func sameOrder[F float32 | float64](t *testing.T, what string, got []F, want []float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d, want %d", what, len(got), len(want))
	}
	for i := range got {
		for j := range got {
			if (got[i] < got[j]) != (want[i] < want[j]) {
				t.Errorf("%s: %v and %v at %d and %d, want them as %v and %v", what, got[i], got[j], i, j, want[i], want[j])
				return
			}
		}
	}
}

func checkTables(t *testing.T, id string, tables []*archive.Table[float64], s *stateFields, b int) {
	t.Helper()
	if s.BankKeys == nil {
		return
	}
	var key, value, score, age []float64
	for _, x := range tables {
		key, value, score, age = append(key, x.Key...), append(value, x.Value...), append(score, x.Score...), append(age, x.Age...)
	}
	near(t, id+" bank keys", key, stream(s.BankKeys, b), tight)
	near(t, id+" bank values", value, stream(s.BankValues, b), tight)
	near(t, id+" bank scores", score, stream(s.BankScores, b), tight)
	sameOrder(t, id+" bank ages", age, stream(s.BankAges, b))
}

// openTrace opens the layer of a trace.
func openTrace(t *testing.T, dev backend.Device, a *attentionTrace) *Layer {
	t.Helper()
	pr, p := traceParams(a.p)
	l, err := New(dev, a.c.config(), pr, p)
	if err != nil {
		t.Fatalf("%s: %v", a.ID, err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// steps runs a stream in chunks of the given sizes.
func runCuts(t *testing.T, l *Layer, st *State, x, hint []float32, cuts []int) []float32 {
	t.Helper()
	w := l.Config.Hidden
	out := make([]float32, len(x))
	at := 0
	for _, n := range cuts {
		b := Block{Hidden: x[at*w : (at+n)*w]}
		if hint != nil {
			b.Hint = hint[at*w : (at+n)*w]
		}
		if err := l.Chunk(context.Background(), out[at*w:(at+n)*w], st, b); err != nil {
			t.Fatal(err)
		}
		at += n
	}
	if at*w != len(x) {
		t.Fatalf("cuts %v of %d rows", cuts, len(x)/w)
	}
	return out
}

func ones(n int) []int {
	l := make([]int, n)
	for i := range l {
		l[i] = 1
	}
	return l
}

func narrow(v []float64) []float32 {
	if v == nil {
		return nil
	}
	f := make([]float32, len(v))
	for i, x := range v {
		f[i] = float32(x)
	}
	return f
}

func widen(v []float32) []float64 {
	f := make([]float64, len(v))
	for i, x := range v {
		f[i] = float64(x)
	}
	return f
}

func TestAttentionTraces(t *testing.T) {
	testAttentionTraces(t, ref.New())
	dev, err := cpu.New(cpu.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	t.Run("cpu", func(t *testing.T) { testAttentionTraces(t, dev) })
}

func testAttentionTraces(t *testing.T, dev backend.Device) {
	for _, a := range attentionTraces(t) {
		if testing.Short() && a.at != nil {
			continue
		}
		l := openTrace(t, dev, a)
		tol := a.Tolerance.Float32
		var got, chunk []float64
		for b := range a.hidden.Shape[0] {
			x, hint := narrow(stream(a.hidden, b)), narrow(stream(a.hint, b))
			st, err := l.NewState()
			if err != nil {
				t.Fatal(err)
			}
			step := runCuts(t, l, st, x, hint, ones(len(x)/l.Config.Hidden))
			got = append(got, a.pick(widen(step))...)
			checkState(t, a.ID, st, &a.want.State, b, tol)
			if a.want.ChunkOutput != nil {
				if n := readCount(t, st); n != a.want.Reads {
					t.Errorf("%s: %d reads, want %d", a.ID, n, a.want.Reads)
				}
			}
			st.Reset()
			cuts := a.splits
			if cuts == nil {
				cuts = []int{1024, 1, 1975}
			}
			other := runCuts(t, l, st, x, hint, cuts)
			st.Release()
			if a.want.ChunkOutput != nil {
				chunk = append(chunk, widen(other)...)
				continue
			}
			sameBits(t, a.ID+" in chunks", other, step)
			if err := l.Forward(context.Background(), other, Block{x, hint}); err != nil {
				t.Fatal(err)
			}
			sameBits(t, a.ID+" as a sequence", other, step)
		}
		near(t, a.ID+" output", got, a.want.Output.f64(), tol)
		if chunk != nil {
			near(t, a.ID+" chunk output", chunk, a.want.ChunkOutput.f64(), tol)
		}
	}
}

func sameBits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d values, want %d", what, len(got), len(want))
		return
	}
	for i := range got {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Errorf("%s: index %d is %08x (%v), want %08x (%v)", what, i, math.Float32bits(got[i]), got[i], math.Float32bits(want[i]), want[i])
			return
		}
	}
}

// saved is everything a state saves, by name.
func saved(t *testing.T, st state.State) map[string]tensor.Tensor {
	t.Helper()
	snap, err := st.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Release()
	m := map[string]tensor.Tensor{}
	err = snap.Save(func(name string, x tensor.Tensor) error {
		v, _ := x.F32()
		c, err := tensor.FromF32(append([]float32(nil), v...), x.Shape()...)
		m[name] = c
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func readCount(t *testing.T, st *State) int {
	v, _ := saved(t, st)["archive.read_mark"].F32()
	return int(v[1])
}

// windowRows are a plane's rows [from, to) of a saved window as [H, rows, D].
func windowRows(m map[string]tensor.Tensor, c Config, plane, from, to int) []float32 {
	var v []float32
	heads, sinks := c.Heads, c.Sinks
	if c.NoArchive {
		sinks = 0
	}
	for h := range heads {
		for j := from; j < to; j++ {
			pg := m[fmt.Sprintf("window.%d.%d.%d", c.Window, sinks, j/backend.Page)]
			v = append(v, pg.Index(plane).Vec(h, j%backend.Page)...)
		}
	}
	return v
}

func checkState(t *testing.T, id string, st *State, s *stateFields, b int, tol float64) {
	t.Helper()
	if st.Seen() != s.Seen {
		t.Errorf("%s: %d tokens seen, want %d", id, st.Seen(), s.Seen)
	}
	m := saved(t, st)
	get := func(name string) []float32 {
		v, _ := m["archive."+name].F32()
		return v
	}
	check := func(what string, got []float32, want *array, tol float64) {
		t.Helper()
		if want != nil {
			near(t, fmt.Sprintf("%s %s of stream %d", id, what, b), got, stream(want, b), tol)
		}
	}
	if !st.cfg.NoArchive {
		check("numerator", get("numerator"), s.Numerator, tol)
		check("denominator", get("denominator"), s.Denominator, tol)
	}
	if s.LastStep != nil {
		var l []float32
		for _, x := range get("last_step") {
			for range st.cfg.Scales {
				l = append(l, x)
			}
		}
		check("last step", l, s.LastStep, 0)
	}
	check("landmark keys", get("landmark_key"), s.LandmarkKey, tol)
	check("landmark values", get("landmark_value"), s.LandmarkValue, tol)
	check("landmark scores", get("landmark_score"), s.LandmarkScore, tol)
	check("bank keys", get("bank_key"), s.BankKeys, tol)
	check("bank values", get("bank_value"), s.BankValues, tol)
	check("bank scores", get("bank_score"), s.BankScores, tol)
	if s.BankAges != nil {
		sameOrder(t, id+" bank ages", get("bank_age"), stream(s.BankAges, b))
	}
	n, c := st.Seen(), st.cfg
	check("local keys", windowRows(m, c, 0, max(0, n-st.cfg.Window), n), s.LocalKeys, tol)
	check("local values", windowRows(m, c, 1, max(0, n-st.cfg.Window), n), s.LocalValues, tol)
	if st.cfg.addresses() {
		check("archive keys", windowRows(m, c, 2, max(0, n-st.cfg.Window), n), s.ArchiveKeys, tol)
	}
	check("sink keys", windowRows(m, c, 0, 0, min(n, st.cfg.Sinks)), s.SinkKeys, tol)
	check("sink values", windowRows(m, c, 1, 0, min(n, st.cfg.Sinks)), s.SinkValues, tol)
}

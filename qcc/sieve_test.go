package qcc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"samebit/backend"
	"samebit/nn"
	"samebit/state"
	"samebit/tensor"
)

func sieved(t *testing.T, d *nn.Decoder, c Sieve) *nn.Decoder {
	t.Helper()
	s, err := Sieved(d, c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A sieve has the bits of the full cache while it holds everything, and beyond that
// those of one token at a time however the text is cut, batched, rewound, forked or
// saved.
func TestSieve(t *testing.T) {
	d, pool, runner := model(t, "qwen3-tied-fp32")
	rows := tokens(3, 300, d.Vocab)
	for _, c := range []Sieve{{Slots: 64}, {Slots: 64, Recent: 30, Sinks: -1}, {Slots: 128, Score: SieveRecent}} {
		what := fmt.Sprintf("%+v", c)
		s, held := sieved(t, d, c), c.Slots+64
		one, two := runner(s), runner(s)
		want := appendAll(t, runner(d), rows[:held])
		sameBits(t, what+": everything is held", appendAll(t, two, rows[:held], 7, 1, 50), want)
		step := appendAll(t, one, rows, ones(len(rows))...)
		if slicesEqual(step, appendAll(t, runner(d), rows)) {
			t.Errorf("%s: a sieve gives the bits of full attention", what)
		}
		appendAll(t, two, rows[held:260], 33, 1, 2)
		if err := two.Truncate(context.Background(), 258); err != nil {
			t.Fatal(err)
		}
		sameBits(t, what+" rewound", appendAll(t, two, rows[258:], 5), step)
		if err := two.Truncate(context.Background(), 130); err != nil { // before the last choice: a replay
			t.Fatal(err)
		}
		sameBits(t, what+" replayed", appendAll(t, two, rows[130:], 1, 90), step)

		var file bytes.Buffer
		if err := one.Save(&file); err != nil {
			t.Fatal(err)
		}
		three := runner(s)
		if err := three.Load(bytes.NewReader(file.Bytes())); err != nil {
			t.Fatal(err)
		}
		fork, err := two.Fork()
		if err != nil {
			t.Fatal(err)
		}
		more := tokens(8, 90, d.Vocab)
		next := appendAll(t, two, more)
		sameBits(t, what+" saved", appendAll(t, three, more, 1, 1), next)
		sameBits(t, what+" forked", appendAll(t, fork, more, 2), next)
		fork.Close()

		// Two sequences share every pass, and one of them chooses in another one.
		dev := pool.Device()
		b, err := s.NewBatcher(dev, nn.BatcherConfig{Rows: 200})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan []float32, 2)
		for i := range 2 {
			r, err := s.NewRunner(nil, pool, nn.RunnerConfig{Batcher: b})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			go func() {
				if i == 1 {
					if err := errors.Join(r.Append(context.Background(), rows[:37]), r.Reset()); err != nil {
						t.Error(err)
					}
				}
				if err := r.Append(context.Background(), rows); err != nil {
					t.Error(err)
				}
				done <- append([]float32(nil), r.Logits()...)
			}()
		}
		for range 2 {
			sameBits(t, what+" in shared passes", <-done, step)
		}
		b.Close()

		// The foreign and the damaged are refused.
		other := runner(sieved(t, d, Sieve{Slots: 192}))
		if err := other.Load(bytes.NewReader(file.Bytes())); err == nil {
			t.Errorf("%s: another sieve reads the state", what)
		}
	}
}

// Recurrent layers stay beside a sieve, and a replay forms both parts again.
func TestSieveHybrid(t *testing.T) {
	d, _, runner := model(t, "qwen35-8l-fp32")
	if d.Shapes.Delta.Layers == 0 || d.Shapes.KV.Layers == 0 {
		t.Fatalf("the model is no hybrid: %+v", d.Shapes)
	}
	s, rows := sieved(t, d, Sieve{Slots: 64}), tokens(5, 290, d.Vocab)
	two := runner(s)
	sameBits(t, "everything is held", appendAll(t, two, rows[:128], 50, 1), appendAll(t, runner(d), rows[:128]))
	if err := two.Reset(); err != nil {
		t.Fatal(err)
	}
	want := appendAll(t, runner(s), rows, ones(len(rows))...)
	if slicesEqual(want, appendAll(t, runner(d), rows)) {
		t.Error("a sieve gives the bits of full attention")
	}
	sameBits(t, "in other cuts", appendAll(t, two, rows, 61, 7, 200), want)
	if err := two.Truncate(context.Background(), 150); err != nil {
		t.Fatal(err)
	}
	sameBits(t, "replayed", appendAll(t, two, rows[150:], 90, 3), want)
}

// Memory does not grow.
func TestSieveMemory(t *testing.T) {
	d, pool, runner := model(t, "qwen3-tied-fp32")
	r := runner(sieved(t, d, Sieve{Slots: 64}))
	if err := r.Append(context.Background(), tokens(1, 320, d.Vocab)); err != nil {
		t.Fatal(err)
	}
	state, before := r.State().Bytes(), pool.Bytes()
	kv := d.Shapes.KV
	if most := int64(3 * 2 * kv.Layers * kv.Heads * 64 * kv.Dim * 4); state > most {
		t.Errorf("a state of %d bytes, want at most three pages, %d", state, most)
	}
	if err := r.Append(context.Background(), tokens(2, 128, d.Vocab)); err != nil {
		t.Fatal(err)
	}
	if r.State().Bytes() != state || pool.Bytes() != before {
		t.Errorf("from %d and %d to %d and %d bytes", state, before, r.State().Bytes(), pool.Bytes())
	}
}

// Where a sieve sees more than a window, it keeps the key that is unlike the others.
func TestSieveChoice(t *testing.T) {
	v := make([]float32, 70*2)
	for i := range 70 {
		v[2*i], v[2*i+1] = 1, float32(i)/1000
	}
	v[2*31], v[2*31+1] = -5, 1
	v[2*33] = float32(math.NaN())
	keys, err := tensor.FromF32(v, 70, 2)
	if err != nil {
		t.Fatal(err)
	}
	c, _ := Sieve{Slots: 64, Recent: 58, Sinks: 2}.resolved()
	for _, x := range []struct {
		score SieveScore
		want  []int
	}{{SieveRecent, []int{0, 1, 8, 9, 10, 11}}, {SieveNovel, []int{0, 1, 8, 9, 10, 11}}} {
		c.Score = x.score
		got, err := c.choose(0, 0, keys, keys, 64)
		if err != nil || len(got) != 64 || fmt.Sprint(got[:6]) != fmt.Sprint(x.want) {
			t.Errorf("%s: %v, %v, want %v at first: a mean that is none decides nothing", x.score, got, err, x.want)
		}
	}
	v[2*33], c.Score, c.Recent = 1, SieveNovel, 20
	got, err := c.choose(0, 0, keys, keys, 64)
	if err != nil || len(got) != 64 {
		t.Fatal(got, err)
	}
	for _, i := range []int{0, 1, 31, 69} {
		if !bytes.Contains([]byte(fmt.Sprint(got)), []byte(fmt.Sprint(i))) {
			t.Errorf("row %d is not kept: %v", i, got)
		}
	}
}

func TestSieveRefuses(t *testing.T) {
	d, pool, _ := model(t, "qwen3-tied-fp32")
	for _, c := range []Sieve{{Slots: 65}, {Slots: -64}, {Slots: 64, Recent: 61}, {Slots: 64, Recent: -1}, {Score: "best"}} {
		if _, err := Sieved(d, c); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if _, err := Sieved(nil, Sieve{}); !errors.Is(err, ErrConfig) {
		t.Error(err)
	}
	p := retrofit(t, d, pool.Device(), func(r *Retrofit) {}).Decoder
	if _, err := Sieved(p, Sieve{}); !errors.Is(err, ErrConfig) {
		t.Errorf("a sieve on an archive: %v", err)
	}
	s := sieved(t, d, Sieve{Slots: 64})
	if _, err := Sieved(s, Sieve{Slots: 64}); !errors.Is(err, ErrConfig) {
		t.Errorf("a sieve on a sieve: %v", err)
	}
	if _, err := s.WithKV(tensor.BF16); err == nil {
		t.Error("a sieved model makes one with a full cache in bf16: no error")
	}
	st, err := s.NewState(pool)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Release()
	if n := state.Room(st, 1000); n != 128 {
		t.Errorf("room for %d rows, want 128", n)
	}
	if err := st.Begin(&backend.Seg{}, 129); err == nil {
		t.Error("a pass goes beyond a choice")
	}
}

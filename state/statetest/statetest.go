// Package statetest holds the laws of every kind of state: what is stored does
// not depend on how the rows were cut, snapshots never change, restoring is
// identity, forks are private, truncating and replaying is exact, a pass that is
// given up leaves nothing behind, and all memory comes back.
package statetest

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"samebit/backend"
	"samebit/state"
	"samebit/tensor"
)

// Kind is a kind of state under test.
type Kind struct {
	Name string
	// New makes an empty state; Reshaped one of another shape.
	New, Reshaped func(*state.Pool, state.ID) (state.State, error)
	// Put runs the ops that store one row per token, in the order of the plan's
	// rows. What they store must follow from the tokens up to each row alone.
	Put func(c *Scratch, p backend.Plan, tokens []int32)
	// Devices are the machines to test on. The laws compare with the first.
	Devices func(t testing.TB) []backend.Device
}

// Scratch is a stream and memory for the operands of its ops.
type Scratch struct {
	backend.Stream
	dev  backend.Device
	bufs []tensor.Buffer
	err  error
}

// Tmp is fresh memory for rows×… float32 values that fill returns; nil leaves it
// unset.
func (c *Scratch) Tmp(fill func(i int) float32, dim ...int) tensor.Tensor {
	n := 1
	for _, d := range dim {
		n *= d
	}
	b, err := c.dev.Alloc(4 * n)
	if err != nil {
		c.err = err
		return tensor.Tensor{}
	}
	c.bufs = append(c.bufs, b)
	t, err := tensor.New(b, 0, tensor.F32, dim...)
	if err != nil {
		c.err = err
	}
	if fill != nil {
		raw := make([]byte, 0, 4*n)
		for i := range n {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(fill(i)))
		}
		c.Write(t, raw)
	}
	return t
}

func (c *Scratch) free() {
	for _, b := range c.bufs {
		c.dev.Free(b)
	}
	c.bufs = nil
}

// Value is a seeded number in [-1, 1): component i of what (a layer and a role)
// for a row's token.
func Value(token int32, what, i int) float32 {
	x := uint64(uint32(token))<<32 ^ uint64(what)<<20 ^ uint64(i)
	x = (x ^ x>>31) * 0x9e3779b97f4a7c15
	x = (x ^ x>>29) * 0xbf58476d1ce4e5b9
	return float32(int32(x>>32)) * 0x1p-31
}

// id is the model that the tested states belong to.
var id = state.ID{1, 2, 3}

// world is one device with a pool, and the kind under test.
type world struct {
	testing.TB
	kind  Kind
	dev   backend.Device
	pool  *state.Pool
	c     *Scratch
	truth *truth
}

// seq is a state and the tokens that it should remember.
type seq struct {
	st     state.State
	tokens []int32
}

// newWorld opens a pool that is checked to be empty when the test ends.
func newWorld(t testing.TB, k Kind, dev backend.Device, limit int64, tr *truth) *world {
	t.Helper()
	p, err := state.NewPool(dev, limit)
	if err != nil {
		t.Fatal(err)
	}
	s, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{TB: t, kind: k, dev: dev, pool: p, c: &Scratch{Stream: s, dev: dev}, truth: tr}
	t.Cleanup(func() {
		if n := p.Bytes(); n != 0 {
			t.Errorf("%d bytes of the pool are in use at the end", n)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		s.Close()
	})
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) newSeq() *seq {
	w.Helper()
	st, err := w.kind.New(w.pool, id)
	w.must(err)
	return &seq{st: st}
}

// begin makes room and runs the ops of a pass over several sequences, without
// committing.
func (w *world) begin(qs []*seq, tokens [][]int32) error {
	segs := make([]backend.Seg, len(qs))
	var all []int32
	for i, q := range qs {
		segs[i] = backend.Seg{Row: len(all), Rows: len(tokens[i])}
		if err := q.st.Begin(&segs[i], len(tokens[i])); err != nil {
			return err
		}
		all = append(all, tokens[i]...)
	}
	defer w.c.free()
	defer w.c.Reset()
	w.kind.Put(w.c, w.c.Plan(segs), all)
	if err := w.c.Sync(); err != nil {
		return err
	}
	return w.c.err
}

// append runs one pass over one sequence.
func (w *world) append(q *seq, tokens ...int32) {
	w.Helper()
	if len(tokens) == 0 {
		return
	}
	w.must(w.begin([]*seq{q}, [][]int32{tokens}))
	q.st.Commit(len(tokens))
	q.tokens = append(q.tokens, tokens...)
}

// appendCut is append in passes of the given sizes; the last takes the rest.
func (w *world) appendCut(q *seq, tokens []int32, cuts ...int) {
	w.Helper()
	for _, n := range cuts {
		n = min(n, len(tokens))
		w.append(q, tokens[:n]...)
		tokens = tokens[n:]
	}
	w.append(q, tokens...)
}

// abort is a pass that is given up after its ops have written.
func (w *world) abort(q *seq, tokens ...int32) {
	w.Helper()
	w.must(w.begin([]*seq{q}, [][]int32{tokens}))
}

func (w *world) snapshot(q *seq) state.Snapshot {
	w.Helper()
	s, err := q.st.Snapshot()
	w.must(err)
	return s
}

func (w *world) fork(q *seq) *seq {
	w.Helper()
	st, err := q.st.Fork()
	w.must(err)
	return &seq{st: st, tokens: append([]int32(nil), q.tokens...)}
}

// truncate goes back to n rows: wherever the state lands, the rest is replayed.
func (w *world) truncate(q *seq, n int) {
	w.Helper()
	reached, err := q.st.Truncate(n)
	w.must(err)
	if reached > n || reached < 0 || q.st.Len() != reached {
		w.Fatalf("Truncate to %d of %d rows landed at %d, Len is %d", n, len(q.tokens), reached, q.st.Len())
	}
	replay := append([]int32(nil), q.tokens[reached:n]...)
	q.tokens = q.tokens[:reached:reached]
	w.append(q, replay...)
}

// check compares a sequence with a straight run of its tokens.
func (w *world) check(q *seq, what string) {
	w.Helper()
	if q.st.Len() != len(q.tokens) {
		w.Fatalf("%s: %d rows, want %d", what, q.st.Len(), len(q.tokens))
	}
	s := w.snapshot(q)
	defer s.Release()
	w.checkSnapshot(s, q.tokens, what)
}

func (w *world) checkSnapshot(s state.Snapshot, tokens []int32, what string) {
	w.Helper()
	if s.Len() != len(tokens) || s.Model() != id {
		w.Fatalf("%s: snapshot of %d rows of model %v, want %d of %v", what, s.Len(), s.Model(), len(tokens), id)
	}
	if got, want := contents(w, s), w.truth.of(tokens); got != want {
		w.Fatalf("%s: %d rows hold other bits than a straight run of them", what, len(tokens))
	}
}

// contents is a digest of names, shapes and bits of everything a snapshot saves.
func contents(t testing.TB, s state.Snapshot) string {
	t.Helper()
	h := sha256.New()
	err := s.Save(func(name string, x tensor.Tensor) error {
		raw, ok := x.Raw()
		if !ok {
			return fmt.Errorf("%q is not in this process's memory", name)
		}
		fmt.Fprintf(h, "%s %v ", name, x)
		h.Write(raw)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(h.Sum(nil))
}

// truth knows what a straight run on the first device stores: row by row while the
// law of cuts is tested, in one pass afterwards, which that law shows to be equal.
type truth struct {
	w    *world
	fast bool
	seen map[string]string
}

func newTruth(t testing.TB, k Kind, dev backend.Device) *truth {
	t.Helper()
	return &truth{w: newWorld(t, k, dev, 0, nil), seen: map[string]string{}}
}

func (tr *truth) of(tokens []int32) string {
	key := fmt.Sprint(tokens)
	if d, ok := tr.seen[key]; ok {
		return d
	}
	q := tr.w.newSeq()
	defer q.st.Release()
	if tr.fast {
		tr.w.append(q, tokens...)
	} else {
		for _, tok := range tokens {
			tr.w.append(q, tok)
		}
	}
	s := tr.w.snapshot(q)
	defer s.Release()
	tr.seen[key] = contents(tr.w, s)
	return tr.seen[key]
}

// text is n tokens that differ from those of other seeds.
func text(seed, n int) []int32 {
	l := make([]int32, n)
	for i := range l {
		l[i] = int32(seed*1000 + i*7%997)
	}
	return l
}

// Run tests a kind of state on all its devices.
func Run(t *testing.T, k Kind) {
	devs := k.Devices(t)
	tr := newTruth(t, k, devs[0])
	for _, dev := range devs {
		t.Run(k.Name+"/"+dev.Name(), func(t *testing.T) {
			for _, law := range []struct {
				name string
				f    func(*world)
			}{
				{"cuts", cuts}, {"company", company}, {"snapshots", snapshots}, {"restore", restore}, {"forks", forks},
				{"truncate", truncate}, {"aborted passes", aborted}, {"foreign", foreign}, {"arguments", arguments}, {"accounts", accounts},
			} {
				tr.fast = law.name != "cuts"
				t.Run(law.name, func(t *testing.T) { law.f(newWorld(t, k, dev, 0, tr)) })
			}
			t.Run("room", func(t *testing.T) { room(t, k, dev, tr) })
			t.Run("goroutines", func(t *testing.T) { goroutines(t, k, dev, tr) })
			for _, to := range devs {
				t.Run("moved to "+to.Name(), func(t *testing.T) {
					moved(newWorld(t, k, dev, 0, tr), newWorld(t, k, to, 0, tr))
				})
			}
			t.Run("random plans", func(t *testing.T) { plans(t, k, dev, tr) })
		})
	}
}

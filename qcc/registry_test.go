package qcc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"samebit/backend"
	"samebit/backend/ref"
)

// registryOp is one operation of a registry trace.
type registryOp struct {
	Op      string
	IDs     []string
	Lens    []int
	Q, K, V *array
}

func TestRegistryTraces(t *testing.T) { testRegistryTraces(t, ref.New()) }

func testRegistryTraces(t *testing.T, dev backend.Device) {
	for _, tr := range readTraces(t, "reg") {
		var c traceConfig
		var p fields
		var in struct{ Ops []registryOp }
		var want struct {
			Outputs []*array
			Final   map[string]*stateFields `json:"final_states"`
		}
		tr.decode(t, tr.Config, &c)
		tr.decode(t, tr.Params, &p)
		tr.decode(t, tr.Inputs, &in)
		tr.decode(t, tr.Expected, &want)
		_, params := traceParams(p)
		r, err := NewRegistry(dev, c.config(), params)
		if err != nil {
			t.Fatal(err)
		}
		layers := map[string]*layer64{}
		for i, op := range in.Ops {
			switch op.Op {
			case "forward", "forward_ragged", "forward_batch":
				got, err := r.ForwardRagged(context.Background(), op.IDs, op.Lens, Projected{Q: op.Q.f32(), K: op.K.f32(), V: op.V.f32()})
				if err != nil {
					t.Fatalf("%s: op %d: %v", tr.ID, i, err)
				}
				near(t, fmt.Sprintf("%s op %d", tr.ID, i), got, want.Outputs[i].f64(), tr.Tolerance.Float32)
				var wide []float64
				row, at := c.NumHeads*c.HeadDim, 0
				for j, id := range op.IDs {
					if layers[id] == nil {
						layers[id] = newLayer64(&c, p)
					}
					for range op.Lens[j] {
						l := layers[id]
						q, k, v := l.split(cut(op.Q.f64(), at, row)), l.split(cut(op.K.f64(), at, row)), l.split(cut(op.V.f64(), at, row))
						wide = append(wide, l.attend(q, k, v, q, k, nil)...)
						at++
					}
				}
				near(t, fmt.Sprintf("%s op %d in float64", tr.ID, i), wide, want.Outputs[i].f64(), tight)
			case "fork":
				if err := r.Fork(op.IDs[0], op.IDs[1]); err != nil {
					t.Fatalf("%s: op %d: %v", tr.ID, i, err)
				}
				layers[op.IDs[1]] = layers[op.IDs[0]].clone()
			case "drop":
				r.Drop(op.IDs[0])
				delete(layers, op.IDs[0])
			case "reset":
				r.Reset(op.IDs[0])
				delete(layers, op.IDs[0])
			default:
				t.Fatalf("%s: op %q", tr.ID, op.Op)
			}
		}
		for id, s := range want.Final {
			q, err := r.find(id)
			if err != nil {
				t.Fatalf("%s: %v", tr.ID, err)
			}
			checkState(t, tr.ID+" "+id, q.st, s, 0, tr.Tolerance.Float32)
			q.Unlock()
			checkHeads(t, tr.ID+" "+id, layers[id].heads, s, 0, tight)
		}
		if got := len(r.Requests()); got != len(want.Final) {
			t.Errorf("%s: requests %v, want %d", tr.ID, r.Requests(), len(want.Final))
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// clone copies what later tokens change.
func (l *layer64) clone() *layer64 {
	c := *l
	c.heads = nil
	for _, h := range l.heads {
		x := *h
		x.Num, x.Den, x.Last = slices.Clone(h.Num), slices.Clone(h.Den), slices.Clone(h.Last)
		c.heads = append(c.heads, &x)
	}
	c.k, c.v, c.raw = l.k[:l.n:l.n], l.v[:l.n:l.n], l.raw[:l.n:l.n]
	return &c
}

func newTestRegistry(t *testing.T, dev backend.Device) *Registry {
	t.Helper()
	c := RegistryConfig(3, 5)
	c.Window, c.Codes = 6, 4
	p, err := NewParams(c, 1)
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewRegistry(dev, c, p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func noise(r *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	return v
}

// projected are rows [from, to) of a request's text.
func projected(id string, from, to, row int) Projected {
	var p Projected
	for t := from; t < to; t++ {
		r := rand.New(rand.NewPCG(uint64(t), uint64(len(id))<<8|uint64(id[0])))
		p.Q, p.K, p.V = append(p.Q, noise(r, row)...), append(p.K, noise(r, row)...), append(p.V, noise(r, row)...)
	}
	return p
}

// Grouping requests differently gives the same bits, also from many goroutines.
func TestRegistryGrouping(t *testing.T) {
	const row, total = 15, 24
	alone := map[string][]float32{}
	ids := []string{"a", "b", "cc", "d"}
	single := newTestRegistry(t, ref.New())
	for _, id := range ids {
		for at := range total {
			y, err := single.Forward(context.Background(), id, projected(id, at, at+1, row))
			if err != nil {
				t.Fatal(err)
			}
			alone[id] = append(alone[id], y...)
		}
	}
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 3))
		reg := newTestRegistry(t, ref.New())
		at, got := map[string]int{}, map[string][]float32{}
		for {
			var names []string
			var lens []int
			var in Projected
			for _, i := range r.Perm(len(ids)) {
				id := ids[i]
				n := min(1+r.IntN(5), total-at[id])
				if n == 0 || r.IntN(3) == 0 {
					continue
				}
				p := projected(id, at[id], at[id]+n, row)
				in.Q, in.K, in.V = append(in.Q, p.Q...), append(in.K, p.K...), append(in.V, p.V...)
				names, lens = append(names, id), append(lens, n)
				at[id] += n
			}
			if len(names) > 0 {
				y, err := reg.ForwardRagged(context.Background(), names, lens, in)
				if err != nil {
					t.Fatal(err)
				}
				for i, id := range names {
					got[id] = append(got[id], y[:lens[i]*row]...)
					y = y[lens[i]*row:]
				}
			}
			done := true
			for _, id := range ids {
				done = done && at[id] == total
			}
			if done {
				break
			}
		}
		for _, id := range ids {
			sameBits(t, fmt.Sprintf("seed %d, request %s", seed, id), got[id], alone[id])
		}
	}
	reg := newTestRegistry(t, ref.New())
	var wg sync.WaitGroup
	for _, id := range ids {
		wg.Go(func() {
			var got []float32
			for at := 0; at < total; at += 3 {
				y, err := reg.Forward(context.Background(), id, projected(id, at, at+3, row))
				if err != nil {
					t.Error(err)
					return
				}
				got = append(got, y...)
				reg.Fork(id, "copy")
				reg.Drop("copy")
			}
			sameBits(t, "request "+id+" beside others", got, alone[id])
		})
	}
	wg.Wait()
}

func TestRegistryErrors(t *testing.T) {
	const row = 15
	r := newTestRegistry(t, ref.New())
	ctx := context.Background()
	if _, err := r.ForwardRagged(ctx, []string{"a", "a"}, []int{1, 1}, projected("a", 0, 2, row)); !errors.Is(err, ErrDuplicateRequest) {
		t.Errorf("an id twice: %v, want ErrDuplicateRequest", err)
	}
	if err := r.Fork("a", "b"); !errors.Is(err, ErrUnknownRequest) {
		t.Errorf("fork of an unknown id: %v", err)
	}
	r.Drop("a") // no error
	for _, lens := range [][]int{{0}, {-1}, {2}, {1, 1}} {
		if _, err := r.ForwardRagged(ctx, []string{"a"}, lens, projected("a", 0, 1, row)); !errors.Is(err, ErrShape) {
			t.Errorf("lengths %v: %v, want ErrShape", lens, err)
		}
	}
	if _, err := r.Forward(ctx, "a", Projected{}); !errors.Is(err, ErrShape) {
		t.Errorf("no rows: %v", err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := r.Forward(cancelled, "new", projected("a", 0, 1, row)); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if l := r.Requests(); len(l) != 0 {
		t.Errorf("requests %v after failures only", l)
	}
	if _, err := r.Seen("a"); !errors.Is(err, ErrUnknownRequest) {
		t.Errorf("Seen of an unknown id: %v", err)
	}
	c := RegistryConfig(3, 5)
	c.Remote = nil
	if _, err := NewRegistry(ref.New(), c, &Params{}); !errors.Is(err, ErrConfig) {
		t.Errorf("a gate without hidden rows: %v", err)
	}
}

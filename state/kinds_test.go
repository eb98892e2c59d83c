package state_test

import (
	"slices"
	"testing"

	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/backend/ref"
	"samebit/state"
	"samebit/state/statetest"
	"samebit/tensor"
)

const kvHeads, kvDim = 3, 10

var (
	kvShape    = state.KVShape{Layers: 2, Heads: kvHeads, Dim: kvDim}
	deltaShape = state.DeltaShape{Layers: 2, Heads: 4, DK: 5, DV: 7, Taps: 4, Channels: 2*2*5 + 4*7}
)

func devices(t testing.TB) []backend.Device {
	l := []backend.Device{ref.New()}
	impls := cpu.Impls()
	impls = slices.Compact([]string{impls[0], impls[len(impls)-1]})
	if testing.Short() {
		impls = impls[len(impls)-1:]
	}
	for _, impl := range impls {
		d, err := cpu.New(cpu.Config{Threads: 2, Impl: impl})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		l = append(l, named{d, "cpu-" + impl})
	}
	return l
}

// named tells the kernels apart in the names of tests.
type named struct {
	backend.Device
	name string
}

func (n named) Name() string { return n.name }

func newKV(p *state.Pool, id state.ID) (state.State, error) { return state.NewKV(p, id, kvShape) }

func newDelta(p *state.Pool, id state.ID) (state.State, error) {
	return state.NewDelta(p, id, deltaShape)
}

// newLongDelta has a tap more.
func newLongDelta(p *state.Pool, id state.ID) (state.State, error) {
	s := deltaShape
	s.Taps++
	return state.NewDelta(p, id, s)
}

// putKV stores keys and values that follow from each row's token.
func putKV(c *statetest.Scratch, p backend.Plan, tokens []int32) {
	const row = kvHeads * kvDim
	for l := range kvShape.Layers {
		at := func(role int) func(int) float32 {
			return func(i int) float32 { return statetest.Value(tokens[i/row], 4*l+role, i%row) }
		}
		c.PutKV(p, l, c.Tmp(at(0), len(tokens), kvHeads, kvDim), c.Tmp(at(1), len(tokens), kvHeads, kvDim))
	}
}

// putDelta runs the convolution and the gated delta rule.
func putDelta(c *statetest.Scratch, p backend.Plan, tokens []int32) {
	d, n := deltaShape, len(tokens)
	const keyHeads = 2
	for l := range d.Layers {
		rows := func(role, heads, dim int) func(int) float32 {
			return func(i int) float32 { return statetest.Value(tokens[i/(heads*dim)], 100+10*l+role, i%(heads*dim)) }
		}
		taps := c.Tmp(func(i int) float32 { return statetest.Value(7, 90+l, i) }, d.Taps, d.Channels)
		x := c.Tmp(nil, n, d.Channels)
		c.Conv(x, c.Tmp(rows(0, 1, d.Channels), n, d.Channels), taps, p, l)
		kd := keyHeads * d.DK
		gate := func(role int) func(int) float32 {
			f := rows(role, d.Heads, 1)
			return func(i int) float32 { v := f(i); return float32(v*v)*0.5 + 0.25 }
		}
		c.GatedDelta(c.Tmp(nil, n, d.Heads, d.DV), x.Cols(0, kd).Heads(keyHeads, d.DK), x.Cols(kd, 2*kd).Heads(keyHeads, d.DK),
			x.Cols(2*kd, d.Channels).Heads(d.Heads, d.DV), c.Tmp(gate(1), n, d.Heads), c.Tmp(gate(2), n, d.Heads), p, l)
	}
}

func TestKV(t *testing.T) {
	statetest.Run(t, statetest.Kind{Name: "KV", New: newKV, Put: putKV, Devices: devices,
		Reshaped: func(p *state.Pool, id state.ID) (state.State, error) {
			return state.NewKV(p, id, state.KVShape{Layers: 1, Heads: kvHeads, Dim: kvDim})
		}})
}

func TestDelta(t *testing.T) {
	statetest.Run(t, statetest.Kind{Name: "Delta", New: newDelta, Put: putDelta, Devices: devices, Reshaped: newLongDelta})
}

type maker = func(*state.Pool, state.ID) (state.State, error)

func stack(makers ...maker) maker {
	return func(p *state.Pool, id state.ID) (state.State, error) {
		st := &state.Stack{}
		for _, f := range makers {
			s, err := f(p, id)
			if err != nil {
				return nil, err
			}
			st.Parts = append(st.Parts, s)
		}
		return st, nil
	}
}

const sumWidth = 37

func newSum(p *state.Pool, id state.ID) (state.State, error) { return state.NewSum(p, id, sumWidth) }

// putSum adds rows that follow from the tokens.
func putSum(c *statetest.Scratch, p backend.Plan, tokens []int32) {
	c.SumRows(p, c.Tmp(func(i int) float32 { return statetest.Value(tokens[i/sumWidth], 300, i%sumWidth) }, len(tokens), sumWidth))
}

func TestSum(t *testing.T) {
	statetest.Run(t, statetest.Kind{Name: "Sum", New: newSum, Put: putSum, Devices: devices,
		Reshaped: func(p *state.Pool, id state.ID) (state.State, error) { return state.NewSum(p, id, sumWidth+1) }})
}

// TestMean divides a sum that is known.
func TestMean(t *testing.T) {
	pool, err := state.NewPool(ref.New(), 0)
	if err != nil {
		t.Fatal(err)
	}
	s, err := state.NewSum(pool, state.ID{}, 2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Mean(); err == nil {
		t.Error("the mean of no rows is not refused")
	}
	stream, err := pool.Device().NewStream()
	if err != nil {
		t.Fatal(err)
	}
	x, _ := tensor.FromF32([]float32{1, 1 << 24, 2, 1, 4, 1}, 3, 2) // 2²⁴ + 1 + 1 stays 2²⁴ in this order
	var seg backend.Seg
	seg.Rows = 3
	if err := s.Begin(&seg, 3); err != nil {
		t.Fatal(err)
	}
	stream.SumRows(stream.Plan([]backend.Seg{seg}), x)
	if err := stream.Sync(); err != nil {
		t.Fatal(err)
	}
	s.Commit(3)
	m, err := s.Mean()
	if err != nil || m[0] != float32(7)/3 || m[1] != float32(1<<24)/3 {
		t.Errorf("mean %v, error %v", m, err)
	}
	s.Release()
	if err := pool.Close(); err != nil {
		t.Error(err)
	}
	if _, err := state.NewSum(pool, state.ID{}, 0); err == nil {
		t.Error("a sum of no values is not refused")
	}
}

func TestStack(t *testing.T) {
	statetest.Run(t, statetest.Kind{Name: "Stack", New: stack(newKV, newDelta, newSum), Reshaped: stack(newKV, newLongDelta), Devices: devices,
		Put: func(c *statetest.Scratch, p backend.Plan, tokens []int32) {
			putKV(c, p, tokens)
			putDelta(c, p, tokens)
			putSum(c, p, tokens)
		}})
}

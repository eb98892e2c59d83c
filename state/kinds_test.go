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
	statetest.Run(t, statetest.Kind{Name: "KV of bf16", Put: putKV, Devices: devices, Reshaped: newKV,
		New: func(p *state.Pool, id state.ID) (state.State, error) {
			s := kvShape
			s.Type = tensor.BF16
			return state.NewKV(p, id, s)
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

const archiveWindow, archiveSinks = 70, 3

var (
	windowShape  = state.WindowShape{Layers: 3, Heads: 2, Dim: 5, Rows: archiveWindow, Sinks: archiveSinks, Addresses: true}
	archiveShape = state.ArchiveShape{Layers: 3, Heads: 4, Codes: 3, Scales: 2, Dim: 5, Landmarks: true, Exact: 6, From: archiveWindow + archiveSinks}
)

func newWindow(p *state.Pool, id state.ID) (state.State, error) {
	return state.NewWindow(p, id, windowShape)
}

func newArchive(p *state.Pool, id state.ID) (state.State, error) {
	return state.NewArchive(p, id, archiveShape)
}

// newWideWindow keeps a row more.
func newWideWindow(p *state.Pool, id state.ID) (state.State, error) {
	s := windowShape
	s.Rows++
	return state.NewWindow(p, id, s)
}

// putArchive runs all ops that write windows and archives.
func putArchive(exact bool) func(c *statetest.Scratch, p backend.Plan, tokens []int32) {
	return func(c *statetest.Scratch, p backend.Plan, tokens []int32) {
		a := c.Stream.(backend.Archive)
		n, w, s := len(tokens), windowShape, archiveShape
		window := backend.WindowParams{Scale: 0.5, Window: archiveWindow, Sinks: archiveSinks}
		for l := range w.Layers {
			rows := func(role, heads int) tensor.Tensor {
				return c.Tmp(func(i int) float32 { return statetest.Value(tokens[i/(heads*w.Dim)], 300+10*l+role, i%(heads*w.Dim)) }, n, heads, w.Dim)
			}
			param := func(role int, dim ...int) tensor.Tensor {
				return c.Tmp(func(i int) float32 { return statetest.Value(9, 400+10*l+role, i) }, dim...)
			}
			a.PutWindow(p, l, rows(0, w.Heads), rows(1, w.Heads), rows(2, w.Heads))
			if !exact {
				continue
			}
			a.ArchiveScan(c.Tmp(nil, n, s.Heads, s.Dim), rows(3, s.Heads), p, l, &backend.ArchiveParams{WindowParams: window, Codes: param(0, s.Heads, s.Codes, s.Dim),
				Mix: param(1, s.Heads, s.Codes, s.Scales), LandmarkMix: param(2, s.Heads), Decay: []float32{0.9, 0.99}, Gain: []float32{0.5, 0.25},
				Landmarks: backend.PersistentLandmarks, LandmarkTemp: 1})
			a.ExactTier(c.Tmp(nil, n, s.Heads, s.Dim), c.Tmp(nil, n, s.Heads), rows(4, s.Heads), p, l, &backend.ExactParams{WindowParams: window, Sets: 3, Ways: 2, Probe: 3,
				Mass: true, QualityFirst: true, Threshold: -1e9, Admission: 1, Diversity: 0.1})
		}
	}
}

func TestWindow(t *testing.T) {
	statetest.Run(t, statetest.Kind{Name: "Window", New: newWindow, Put: putArchive(false), Devices: devices, Reshaped: newWideWindow})
}

func TestArchive(t *testing.T) {
	statetest.Run(t, statetest.Kind{Name: "Archive", New: stack(newWindow, newArchive), Put: putArchive(true), Devices: devices, Reshaped: stack(newWideWindow, newArchive)})
}

func TestKept(t *testing.T) {
	statetest.Run(t, statetest.Kind{Name: "Kept", Put: putKV, Devices: devices,
		New: func(p *state.Pool, id state.ID) (state.State, error) { return state.NewKept(p, id, kvShape) },
		Reshaped: func(p *state.Pool, id state.ID) (state.State, error) {
			return state.NewKept(p, id, state.KVShape{Layers: 1, Heads: kvHeads, Dim: kvDim})
		}})
}

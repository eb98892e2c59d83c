package cuda_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"samebit/backend"
	"samebit/backend/backendtest"
	"samebit/backend/cuda"
	"samebit/backend/cuda/driver"
	"samebit/backend/cuda/emu"
	"samebit/tensor"
	"samebit/tensor/tensortest"
)

// bed has the operands of a pass, one behind the other in a buffer of random values:
// making them takes no call of the driver.
type bed struct {
	s    backend.Stream
	buf  tensor.Buffer
	w    backend.Weight // float32, [9, 6]
	used int            // bytes

	states  []tensor.Tensor // that a pass which fails must leave as they were
	results []tensor.Tensor
}

const bedFloats = 128 << 10

func (b *bed) of(dt tensor.DType, dim ...int) tensor.Tensor {
	x, err := tensor.New(b.buf, b.used, dt, dim...)
	if err != nil {
		panic(err) // the buffer is too small
	}
	b.used += 4 * x.Len()
	return x
}

func (b *bed) in(dim ...int) tensor.Tensor { return b.of(tensor.F32, dim...) }

func (b *bed) state(dim ...int) tensor.Tensor {
	b.states = append(b.states, b.in(dim...))
	return b.states[len(b.states)-1]
}

func (b *bed) out(dim ...int) tensor.Tensor {
	b.results = append(b.results, b.in(dim...))
	return b.results[len(b.results)-1]
}

func (b *bed) ints(v ...int32) tensor.Tensor {
	x := b.of(tensor.I32, len(v))
	b.s.Write(x, tensor.AsBytes(v))
	return x
}

// work is a pass of so many calls of the driver, at least. ops leaves states as they
// are; change, if there is one, is what it does to them when all has gone well.
type work struct {
	name  string
	ops   func(b *bed) (change func())
	least int
}

// works are what a device does beside inference (life has that): a step of training,
// and passes of archives with their gradients.
var works = []work{{"training", trainingStep, 80}, {"archives", archivePass, 80}, {"archive gradients", archiveBack, 60}}

// trainingStep has every gradient that a model of both kinds of layers takes.
func trainingStep(b *bed) func() {
	const rows, c, v, h, d, hv = 5, 6, 9, 2, 4, 2
	s, g := b.s, b.s.(backend.Grad)
	heads := func(n, d int) tensor.Tensor { return b.in(rows, n, d) }
	weights, m, moment := b.state(v, c), b.state(v, c), b.state(v, c)
	segs := []backend.Seg{{Rows: 3}, {Row: 3, Rows: 2}}
	for i := range segs {
		segs[i].DeltaIn, segs[i].DeltaOut = b.state(1, hv, d, d), b.in(1, hv, d, d)
		segs[i].ConvIn, segs[i].ConvOut = b.state(1, 3, c), b.in(1, 3, c)
	}
	rope := &backend.RoPE{Inv: []float32{1, 0.1}, Factor: 1}
	ids, targets := b.ints(3, 0, 8, 3, 1), b.ints(1, 8, -1, 0, 2)
	p := s.Plan(segs)
	x, n, y, w := b.in(rows, c), b.in(rows, c), b.in(rows, v), b.in(c)
	s.Embed(x, b.w, ids)
	s.RMSNorm(n, x, w, 1e-6)
	s.Linear(y, n, b.w)
	loss, dy, dn, dx, dw, dtable := b.out(rows), b.in(rows, v), b.in(rows, c), b.out(rows, c), b.out(c), b.out(v, c)
	for _, t := range []tensor.Tensor{dy, dn, dtable} {
		g.Zero(t)
	}
	g.CrossEntropy(loss, dy, y, targets, tensor.Tensor{}, 0.25)
	g.LinearGrad(dn, dy, b.w)
	g.WeightGrad(dtable, dy, n, p)
	g.RMSNormGrad(dx, dw, dn, x, w, 1e-6, p)
	g.LayerNormGrad(b.out(rows, c), b.out(c), b.out(c), dn, x, w, 1e-5, p)
	g.AttentionGrad(b.out(rows, h, d), b.out(rows, 1, d), b.out(rows, 1, d), heads(h, d), heads(h, d), heads(h, d), heads(1, d), heads(1, d), p, 0.5, 0)
	g.NormRoPEGrad(b.out(rows, h, d), b.out(d), heads(h, d), heads(h, d), b.in(d), 1e-6, rope, p)
	g.ConvGrad(b.out(rows, c), b.out(4, c), b.in(rows, c), b.in(rows, c), b.in(4, c), p, 0)
	g.L2NormGrad(b.out(rows, h, d), heads(h, d), heads(h, d), 1e-6, 1)
	gate := func() tensor.Tensor { return b.in(rows, hv) }
	g.DeltaGatesGrad(b.out(rows, hv), b.out(rows, hv), b.out(hv), b.out(hv), gate(), gate(), gate(), gate(), gate(), b.in(hv), b.in(hv), p)
	g.GatedDeltaGrad(b.out(rows, 1, d), b.out(rows, 1, d), b.out(rows, hv, d), b.out(rows, hv), b.out(rows, hv), heads(hv, d), heads(1, d), heads(1, d), heads(hv, d), gate(), gate(), p, 0)
	g.GatedRMSNormGrad(b.out(rows, h, d), b.out(rows, h, d), b.out(d), heads(h, d), heads(h, d), heads(h, d), b.in(d), 1e-6, p)
	g.SwiGLUGrad(b.out(rows, c), b.out(rows, c), b.in(rows, c), b.in(rows, c), b.in(rows, c))
	g.SigmoidMulGrad(b.out(rows, c), b.out(rows, c), b.in(rows, c), b.in(rows, c), b.in(rows, c))
	g.SoftmaxGrad(b.out(rows, c), b.in(rows, c), b.in(rows, c))
	g.BiasGrad(b.out(c), b.in(rows, c), p)
	g.GatherGrad(b.out(rows, c), b.in(rows, c), b.ints(0, 4, 2, 2, 1))
	g.EmbedGrad(dtable, dx, ids)
	const wide = 96 // a state that needs more shared memory than kernels have without asking
	p = s.Plan([]backend.Seg{{Rows: 2, DeltaIn: b.state(1, 1, wide, wide), DeltaOut: b.in(1, 1, wide, wide)}})
	of := func(make func(dim ...int) tensor.Tensor) tensor.Tensor { return make(2, 1, wide) }
	g.GatedDeltaGrad(of(b.out), of(b.out), of(b.out), b.out(2, 1), b.out(2, 1), of(b.in), of(b.in), of(b.in), of(b.in), b.in(2, 1), b.in(2, 1), p, 0)
	norm := b.out(1)
	g.SumSquares(norm, dtable)
	s.Read(make([]byte, 4), norm)
	return func() {
		g.AdamW(weights, m, moment, dtable, backend.AdamWStep{Beta1: 0.9, Rest1: 0.1, Beta2: 0.99, Rest2: 0.01, Scale2: 1, Rate: 0.01, Decay: 0.99, Eps: 1e-3, Clip: 1})
		g.Repack(b.w, weights)
	}
}

// archives are parameters and sequences of an archive layer.
func (b *bed) archives(segs []backend.Seg, window backend.WindowParams, kv, hq, d int) (p *backend.ArchiveParams, x *backend.ExactParams) {
	const m, n, sets, ways = 4, 2, 3, 2
	p = &backend.ArchiveParams{WindowParams: window, Codes: b.in(hq, m, d), Mix: b.in(hq, m, 2), CorrV: b.in(hq, d, n), CorrU: b.in(hq, n, d), CorrScale: b.in(hq, n, 2), LandmarkMix: b.in(hq),
		Decay: []float32{0.9, 0.5}, Gain: []float32{0.7, 0.25}, Landmarks: backend.PersistentLandmarks, LandmarkTemp: 1, Reuse: true, Stride: 2, Close: true, Closeness: 0.5}
	x = &backend.ExactParams{WindowParams: window, Sets: sets, Ways: ways, Probe: 2, AdmKey: b.in(hq, d), AdmValue: b.in(hq, d), AdmBias: b.in(hq), Mix: b.in(hq), SetCodes: b.in(hq, sets, d),
		Threshold: -9, Confidence: 0.25, ConfidenceTemp: 2, Admission: 0.5, Diversity: 0.5, Soft: true, SoftTemp: 2}
	for i := range segs {
		a := &backend.ArchiveSeg{Slot: segs[i].Slot, Raw: 2}
		for range (segs[i].Slot + segs[i].Rows + backend.Page - 1) / backend.Page {
			a.Window = append(a.Window, b.in(4, kv, backend.Page, d))
		}
		bank := func(f func(dim ...int) tensor.Tensor) backend.ArchiveBank {
			return backend.ArchiveBank{Num: f(1, hq, m*2, d), Den: f(1, hq, m*2), LandKey: f(1, hq, m, d), LandValue: f(1, hq, m, d), LandScore: f(1, hq, m),
				Key: f(1, hq, sets*ways, d), Value: f(1, hq, sets*ways, d), Score: f(1, hq, sets*ways), Age: f(1, hq, sets*ways), Next: f(1, hq),
				ReadQuery: f(1, hq, d), ReadValue: f(1, hq, d), ReadMark: f(1, 2)}
		}
		a.In, a.Out = bank(b.state), bank(b.out)
		segs[i].Archive = a
	}
	return p, x
}

func archivePass(b *bed) func() {
	const rows, kv, hq, d = 4, 1, 2, 6
	s := b.s.(backend.Archive)
	window := backend.WindowParams{Scale: 0.5, Window: 3, Sinks: 1}
	segs := []backend.Seg{{Rows: 3, Slot: 9, Pos: 9}, {Row: 3, Rows: 1, Slot: 6, Pos: 6}}
	w, x := b.archives(segs, window, kv, hq, d)
	p := b.s.Plan(segs)
	heads := func(n int) tensor.Tensor { return b.in(rows, n, d) }
	q, local, mass, remote, exact, weight := heads(hq), b.out(rows, hq, d), b.out(rows, hq), b.out(rows, hq, d), b.out(rows, hq, d), b.out(rows, hq)
	s.QueryCorrection(b.out(rows, hq, d), q, w.CorrV, w.CorrU)
	s.PutWindow(p, 0, heads(kv), heads(kv), heads(kv))
	s.WindowAttention(local, mass, q, p, 0, window)
	s.ArchiveScan(remote, q, p, 0, w)
	s.ExactTier(exact, weight, q, p, 0, x)
	lazy := *w
	lazy.Reuse, lazy.Lazy, lazy.Active = false, true, 2
	for i := range segs {
		segs[i].Archive.In.Last, segs[i].Archive.Out.Last = b.state(1, hq, 4), b.out(1, hq, 4)
	}
	p = b.s.Plan(segs)
	s.ArchiveScan(b.out(rows, hq, d), q, p, 0, &lazy)
	s.Blend(b.out(rows, hq, d), remote, exact, weight)
	s.MassMerge(b.out(rows, hq, d), local, mass, exact, weight)
	s.GateMix(b.out(rows, hq, d), local, remote, b.in(rows, hq), weight, p, backend.GateParams{From: 4, Norm: true})
	s.GELU(b.out(rows, d), b.in(rows, d))
	return nil
}

func archiveBack(b *bed) func() {
	const rows, kv, hq, d = 9, 1, 2, 6
	g := b.s.(backend.ArchiveGrad)
	window := backend.WindowParams{Scale: 0.5, Window: 2, Sinks: 1}
	w, _ := b.archives(nil, window, kv, hq, d)
	p := b.s.Plan([]backend.Seg{{Rows: 7}, {Row: 7, Rows: 2}})
	heads := func(n int) tensor.Tensor { return b.in(rows, n, d) }
	out := func(n int) tensor.Tensor { return b.out(rows, n, d) }
	like := func(t tensor.Tensor) tensor.Tensor { return b.out(t.Shape()...) }
	w.Reuse, w.Close = false, false
	grads := &backend.ArchiveGrads{Q: out(hq), K: out(kv), V: out(kv), Codes: like(w.Codes), Mix: like(w.Mix), CorrV: like(w.CorrV), CorrU: like(w.CorrU), CorrScale: like(w.CorrScale), LandmarkMix: like(w.LandmarkMix)}
	g.ArchiveScanGrad(grads, heads(hq), heads(hq), heads(kv), heads(kv), p, w)
	g.WindowAttentionGrad(out(hq), out(kv), out(kv), heads(hq), heads(hq), heads(hq), heads(kv), heads(kv), p, window)
	g.GateMixGrad(out(hq), out(hq), b.out(rows, hq), heads(hq), heads(hq), heads(hq), b.in(rows, hq), p, backend.GateParams{From: 3, Norm: true})
	g.QueryCorrectionGrad(out(hq), like(w.CorrV), like(w.CorrU), heads(hq), heads(hq), w.CorrV, w.CorrU, p)
	g.GELUGrad(b.out(rows, d), b.in(rows, d), b.in(rows, d))
	return nil
}

// makeBed makes the operands on a device. It and end are the calls of the driver that
// every device needs; the others are those of a pass.
func makeBed(d *cuda.Device) (b *bed, err error) {
	b = &bed{}
	if b.buf, err = d.Alloc(4 * bedFloats); err != nil {
		return b, err
	}
	raw, err := tensor.FromF32(tensortest.NewRand(backendtest.Seed, "bed").F32(tensortest.Ordinary, 9*6), 9, 6)
	if err != nil {
		return b, err
	}
	if b.w, err = d.Pack(raw, backend.UseLinear|backend.UseEmbed); err != nil {
		return b, err
	}
	b.s, err = d.NewStream()
	return b, err
}

func (b *bed) end(d *cuda.Device) (err error) {
	if b.s != nil {
		err = b.s.Close()
	}
	if b.w != nil {
		d.Unpack(b.w)
	}
	if b.buf != nil {
		d.Free(b.buf)
	}
	return err
}

// fill writes the values that the pass begins with.
func (b *bed) fill() error {
	all, err := tensor.New(b.buf, 0, tensor.F32, bedFloats)
	if err != nil {
		return err
	}
	v := tensortest.NewRand(backendtest.Seed, "operands").F32(tensortest.Ordinary, bedFloats)
	b.s.Write(all, tensor.AsBytes(v))
	b.used, b.states, b.results = 0, nil, nil
	return b.s.Sync()
}

// play runs the pass, and what changes states only once it has ended well.
func (b *bed) play(w work) error {
	change := w.ops(b)
	if err := b.s.Sync(); err != nil || change == nil {
		return err
	}
	change()
	return b.s.Sync()
}

func (b *bed) read(ts []tensor.Tensor) ([]float32, error) {
	var all []float32
	for _, t := range ts {
		v := make([]float32, t.Len())
		b.s.Read(tensor.AsBytes(v), t)
		all = append(all, v...)
		if err := b.s.Sync(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// wholeLife is a device that opens, does the work and closes.
func wholeLife(drv driver.Driver, w work) (err error) {
	d, err := cuda.New(cuda.Config{Driver: drv})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	b, err := makeBed(d)
	defer func() { err = errors.Join(err, b.end(d)) }()
	if err != nil {
		return err
	}
	if err := b.fill(); err != nil {
		return err
	}
	return b.play(w)
}

// Steps of training and passes of archives report what fails, leave the states as they
// were, and give the same bits when they are run again; nothing leaks.
func TestFaultsLeaveStates(t *testing.T) {
	base := emu.New(emu.Config{Workers: 1})
	f := &faulty{Driver: base, code: driver.OutOfMemory}
	d, err := cuda.New(cuda.Config{Driver: f})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range works {
		calls, want, before := 0, []float32(nil), []float32(nil)
		step := int64(1)
		if testing.Short() {
			step = 9
		}
		for at := int64(1); calls == 0 || at <= int64(calls); at += step {
			b, err := makeBed(d) // a stream that has no scratch memory yet
			if err != nil {
				t.Fatal(err)
			}
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatalf("%s, call %d, %s: %v", w.name, at, f.hit, err)
				}
			}
			must(b.fill())
			if calls == 0 { // undisturbed
				begin := f.calls.Load()
				must(b.play(w))
				calls = int(f.calls.Load() - begin)
				want, err = b.read(b.results)
				must(err)
				must(b.fill())
				w.ops(b)
				states := b.states
				must(b.fill())
				before, err = b.read(states)
				must(err)
			}
			must(b.fill())
			f.hit, f.at = "", f.calls.Load()+at
			change := w.ops(b)
			err = b.s.Sync()
			inPass := f.hit != ""
			if !inPass && err == nil && change != nil {
				change()
				err = b.s.Sync()
			}
			f.at = 0
			if f.hit != "" && !errors.Is(err, backend.ErrNoMemory) {
				t.Errorf("%s: call %d, %s, fails and the error is %v", w.name, at, f.hit, err)
			}
			b.s.Reset()
			if inPass {
				got, err := b.read(b.states)
				must(err)
				if diff := tensortest.DiffBits(before, got); diff != "" {
					t.Errorf("%s: call %d, %s, fails and the states are others: %s", w.name, at, f.hit, diff)
				}
			}
			must(b.fill())
			must(b.play(w))
			got, err := b.read(b.results)
			must(err)
			if diff := tensortest.DiffBits(want, got); diff != "" {
				t.Errorf("%s: after call %d, %s, failed the results are others: %s", w.name, at, f.hit, diff)
			}
			must(b.end(d))
		}
		if calls < w.least {
			t.Errorf("%s takes %d calls: too few to be all", w.name, calls)
		}
		t.Logf("%s: %d calls", w.name, calls)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if n := held(base); n != 0 {
		t.Errorf("%d objects of the driver were not given back", n)
	}
}

// Every call of the driver in the life of a device that trains, or has archives, may
// fail: the failure is reported with its call, and everything is given back.
func TestWorkFaults(t *testing.T) {
	base := emu.New(emu.Config{Workers: 1})
	for _, w := range works {
		count := &faulty{Driver: base}
		if err := wholeLife(count, w); err != nil {
			t.Fatal(err)
		}
		n, step := count.calls.Load(), int64(1)
		if testing.Short() {
			step = 11
		}
		for at := int64(1); at <= n; at += step {
			f := &faulty{Driver: base, at: at, code: driver.LaunchFailed}
			checkFault(t, fmt.Sprintf("%s, call %d of %d", w.name, at, n), f, wholeLife(f, w))
			if held := held(base); held != 0 {
				t.Fatalf("%s, call %d, %s, fails: %d objects of the driver were not given back", w.name, at, f.hit, held)
			}
		}
	}
}

// checkFault demands the error of a call that was made to fail.
func checkFault(t *testing.T, what string, f *faulty, err error) {
	t.Helper()
	switch {
	case err == nil && f.hit == "Free": // Device.Free has no way to tell
	case err == nil || !strings.Contains(err.Error(), f.hit) || !errors.Is(err, driver.ErrLost):
		t.Errorf("%s, %s, fails and the error is %v", what, f.hit, err)
	}
}

package grad_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"samebit/backend"
	"samebit/backend/ref"
	"samebit/grad"
	"samebit/tensor"
)

var _ backend.Archive = (*grad.Tape)(nil)

// archiveRig is a rig with a window of two rows and an archive of two codes and one
// scale for heads of width 2.
type archiveRig struct {
	*rig
	w *backend.ArchiveParams
}

func newArchiveRig(t *testing.T) *archiveRig {
	r := &archiveRig{rig: newRig(t, ref.New())}
	r.w = &backend.ArchiveParams{WindowParams: backend.WindowParams{Scale: 0.5, Window: 2}, Codes: r.new([]float32{1, 0.5, -0.5, 1}, 1, 2, 2), Mix: r.new(nil, 1, 2, 1),
		CorrV: r.new([]float32{0.5, 1}, 1, 2, 1), CorrU: r.new([]float32{0.25, 0.5}, 1, 1, 2), CorrScale: r.new([]float32{1}, 1, 1, 1), Decay: []float32{0.75}, Gain: []float32{0.5}}
	return r
}

// sequences plans whole sequences with windows and archives of their own.
func (r *archiveRig) sequences(rows ...int) backend.Plan {
	var segs []backend.Seg
	at := 0
	for _, n := range rows {
		a := &backend.ArchiveSeg{Window: []tensor.Tensor{r.new(nil, 2, 1, 64, 2)}}
		a.In.Num, a.Out.Num, a.In.Den, a.Out.Den = r.new(nil, 1, 1, 2, 2), r.new(nil, 1, 1, 2, 2), r.new(nil, 1, 1, 2), r.new(nil, 1, 1, 2)
		segs = append(segs, backend.Seg{Row: at, Rows: n, Archive: a})
		at += n
	}
	return r.t.Plan(segs)
}

// A pass over window, archive, correction and gate reaches every parameter, and
// what the tape watches is trained by a step.
func TestArchivePass(t *testing.T) {
	r := newArchiveRig(t)
	params := map[string]*grad.Param{}
	for name, use := range map[string]tensor.Tensor{"codes": r.w.Codes, "mix": r.w.Mix, "corrV": r.w.CorrV, "corrU": r.w.CorrU, "corrScale": r.w.CorrScale} {
		v := make([]float32, use.Len())
		r.s.Read(tensor.AsBytes(v), use)
		r.must(r.s.Sync())
		p, err := r.p.AddTensor(name, use, grad.Plain, v)
		r.must(err)
		params[name] = p
	}
	const rows = 6
	v := make([]float32, rows*2)
	for i := range v {
		v[i] = float32(math.Sin(float64(3 * i)))
	}
	q, k, val, gate := r.new(v, rows, 1, 2), r.new(v, rows, 1, 2), r.new(v, rows, 1, 2), r.new(nil, rows, 1)
	moved, local, remote, y := r.new(nil, rows, 1, 2), r.new(nil, rows, 1, 2), r.new(nil, rows, 1, 2), r.new(nil, rows, 1, 2)
	p := r.sequences(4, 2)
	r.t.PutWindow(p, 0, k, val, tensor.Tensor{})
	r.t.QueryCorrection(moved, q, r.w.CorrV, r.w.CorrU)
	r.t.WindowAttention(local, tensor.Tensor{}, moved, p, 0, r.w.WindowParams)
	r.t.ArchiveScan(remote, moved, p, 0, r.w)
	r.t.GateMix(y, local, remote, gate, tensor.Tensor{}, p, backend.GateParams{From: 2})
	r.t.Seed(y, r.new(v, rows, 1, 2))
	r.must(r.t.Backward())
	r.must(r.p.Finish())
	read := func(x tensor.Tensor) []float32 {
		v := make([]float32, x.Len())
		r.s.Read(tensor.AsBytes(v), x)
		r.must(r.s.Sync())
		return v
	}
	some := func(what string, v []float32) {
		for _, x := range v {
			if x != 0 && x-x == 0 {
				return
			}
		}
		t.Errorf("the gradient of %s is %v", what, v)
	}
	for name, p := range params {
		if name != "mix" && name != "corrScale" { // one scale has nothing to choose from
			some(name, read(p.Grad))
		}
	}
	some("queries", read(r.t.Grad(q)))
	some("keys", read(r.t.Grad(k)))
	some("values", read(r.t.Grad(val)))
	some("gate", read(r.t.Grad(gate)))
	if g := read(r.t.Grad(gate)); g[0] != 0 || g[4] != 0 {
		t.Errorf("rows without an archive have slopes %v by their gate", g)
	}
}

// What of the archive has no gradient is refused by name.
func TestArchiveRefusals(t *testing.T) {
	r := newArchiveRig(t)
	none := tensor.Tensor{}
	h, y, m := r.new(nil, 4, 1, 2), r.new(nil, 4, 1, 2), r.new(nil, 4, 1)
	with := func(set func(w *backend.ArchiveParams)) *backend.ArchiveParams {
		w := *r.w
		set(&w)
		return &w
	}
	for _, c := range []struct {
		want string
		call func()
	}{
		{"ExactTier has no gradient", func() { r.t.ExactTier(y, m, h, r.sequences(4), 0, &backend.ExactParams{}) }},
		{"Blend has no gradient", func() { r.t.Blend(y, h, h, m) }},
		{"MassMerge has no gradient", func() { r.t.MassMerge(y, h, m, h, m) }},
		{"GateMix with a promotion has no gradient", func() { r.t.GateMix(y, h, h, m, m, r.sequences(4), backend.GateParams{}) }},
		{"lazy decay or sparse reads has no gradient", func() {
			r.t.ArchiveScan(y, h, r.sequences(4), 0, with(func(w *backend.ArchiveParams) { w.Active, w.Lazy = 2, true }))
		}},
		{"lazy decay or sparse reads has no gradient", func() {
			r.t.ArchiveScan(y, h, r.sequences(4), 0, with(func(w *backend.ArchiveParams) { w.Active = 1 }))
		}},
		{"no parameters", func() { r.t.ArchiveScan(y, h, r.sequences(4), 0, nil) }},
		{"WindowAttention of layer 0 without its PutWindow", func() { r.t.WindowAttention(y, none, h, r.sequences(4), 0, r.w.WindowParams) }},
		{"ArchiveScan of layer 0 without its PutWindow", func() { r.t.ArchiveScan(y, h, r.sequences(4), 0, r.w) }},
		{"stored twice", func() {
			p := r.sequences(4)
			r.t.PutWindow(p, 0, h, h, none)
			r.t.PutWindow(p, 0, h, h, none)
		}},
		{"keep every result", func() {
			p := r.sequences(4)
			r.t.GateMix(y, h, h, m, none, p, backend.GateParams{})
			r.t.GateMix(y, h, h, m, none, p, backend.GateParams{})
		}},
	} {
		c.call()
		if err := r.t.Sync(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("want an error that says %q, got %v", c.want, err)
		}
		if err := r.t.Backward(); err == nil {
			t.Errorf("%s: Backward goes on", c.want)
		}
		r.t.Reset()
	}
}

// plainGrad is a stream that trains, but has no gradients of archive attention.
type plainGrad struct {
	backend.Stream
	backend.Grad
}

func TestNoArchiveGrad(t *testing.T) {
	r := newArchiveRig(t)
	tape, err := grad.NewTape(plainGrad{r.s, r.s.(backend.Grad)}, r.dev, r.p)
	r.must(err)
	defer tape.Close()
	h := r.new(nil, 4, 1, 2)
	for name, call := range map[string]func(){
		"PutWindow": func() { tape.PutWindow(tape.Plan(nil), 0, h, h, tensor.Tensor{}) },
		"GELU":      func() { tape.GELU(r.new(nil, 4, 2), r.new(nil, 4, 2)) },
	} {
		call()
		if err := tape.Sync(); !errors.Is(err, backend.ErrUnsupported) {
			t.Errorf("%s: %v, want ErrUnsupported", name, err)
		}
		tape.Reset()
	}
}

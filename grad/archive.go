package grad

import (
	"fmt"

	"samebit/backend"
	"samebit/tensor"
)

// A tape is a backend.Archive as well: its ops fail with backend.ErrUnsupported if
// those of the inner stream are none or have no gradients, as the exact tier, lazy
// decay and sparse reads have none.
var _ backend.Archive = (*Tape)(nil)

// windowRows is what PutWindow stored in a pass.
type windowRows struct{ k, v, raw tensor.Tensor }

// archive is the inner stream with its gradients, nil after a failure.
func (t *Tape) archive() (backend.Archive, backend.ArchiveGrad) {
	a, ok := t.inner.(backend.Archive)
	g, can := t.inner.(backend.ArchiveGrad)
	if !ok || !can {
		t.fail(fmt.Errorf("grad: device %s has no gradients of archive attention: %w", t.dev.Name(), backend.ErrUnsupported))
		return nil, nil
	}
	return a, g
}

// window returns what the pass stored in a layer's window.
func (t *Tape) window(op string, layer int) windowRows {
	w, ok := t.windows[layer]
	if !ok {
		t.fail(fmt.Errorf("grad: %s of layer %d without its PutWindow in this pass", op, layer))
	}
	return w
}

func (t *Tape) PutWindow(p backend.Plan, layer int, k, v, raw tensor.Tensor) {
	if t.Err() != nil {
		return
	}
	t.begin()
	a, _ := t.archive()
	if a == nil {
		return
	}
	if _, twice := t.windows[layer]; twice {
		t.fail(fmt.Errorf("grad: the window of layer %d is stored twice in a pass", layer))
		return
	}
	a.PutWindow(p, layer, k, v, raw)
	t.windows[layer] = windowRows{k, v, raw}
}

// WindowAttention has a gradient, its mass has none.
func (t *Tape) WindowAttention(dst, mass, q tensor.Tensor, p backend.Plan, layer int, w backend.WindowParams) {
	if !t.writes("WindowAttention", dst) || mass.Valid() && !t.writes("WindowAttention", mass) {
		return
	}
	a, g := t.archive()
	if a == nil {
		return
	}
	a.WindowAttention(dst, mass, q, p, layer, w)
	in := t.window("WindowAttention", layer)
	t.record(func() {
		g.WindowAttentionGrad(t.grad(q), t.grad(in.k), t.grad(in.v), t.grad(dst), dst, q, in.k, in.v, p, w)
	})
}

func (t *Tape) ArchiveScan(dst, q tensor.Tensor, p backend.Plan, layer int, w *backend.ArchiveParams) {
	if !t.writes("ArchiveScan", dst) {
		return
	}
	a, g := t.archive()
	if a == nil {
		return
	}
	if w != nil && (w.Lazy || w.Active > 0 && w.Active < w.Codes.Dim(1)) {
		t.refuse("ArchiveScan with lazy decay or sparse reads", "train with eager decay and all codes, the parameters are the same")
		return
	}
	a.ArchiveScan(dst, q, p, layer, w)
	if t.Err() != nil {
		return
	}
	in, x := t.window("ArchiveScan", layer), *w
	k, v := in.k, in.v
	if in.raw.Valid() {
		k = in.raw
	}
	if x.Lexical {
		v = k
	}
	of := func(p tensor.Tensor) tensor.Tensor { return t.vector("ArchiveScan", p, q.Dim(0)) }
	d := backend.ArchiveGrads{Codes: of(x.Codes), Mix: of(x.Mix), CorrV: of(x.CorrV), CorrU: of(x.CorrU), CorrScale: of(x.CorrScale)}
	if x.Landmarks == backend.PersistentLandmarks {
		d.LandmarkMix = of(x.LandmarkMix)
	}
	t.record(func() {
		to := d
		to.Q, to.K, to.V = t.grad(q), t.grad(k), t.grad(v)
		g.ArchiveScanGrad(&to, t.grad(dst), q, k, v, p, &x)
	})
}

func (t *Tape) GateMix(dst, local, remote, gate, promote tensor.Tensor, p backend.Plan, w backend.GateParams) {
	if promote.Valid() {
		t.refuse("GateMix with a promotion", "train without an exact tier")
		return
	}
	if !t.writes("GateMix", dst) {
		return
	}
	a, g := t.archive()
	if a == nil {
		return
	}
	a.GateMix(dst, local, remote, gate, promote, p, w)
	t.record(func() {
		dgate := tensor.Tensor{}
		if gate.Valid() {
			dgate = t.grad(gate)
		}
		g.GateMixGrad(t.grad(local), t.grad(remote), dgate, t.grad(dst), local, remote, gate, p, w)
	})
}

func (t *Tape) QueryCorrection(dst, q, v, u tensor.Tensor) {
	if !t.writes("QueryCorrection", dst) {
		return
	}
	a, g := t.archive()
	if a == nil {
		return
	}
	a.QueryCorrection(dst, q, v, u)
	dv, du, plan := t.apart("QueryCorrection", v, q.Dim(0)), t.apart("QueryCorrection", u, q.Dim(0)), t.plan
	t.record(func() { g.QueryCorrectionGrad(t.grad(q), dv, du, t.grad(dst), q, v, u, plan) })
}

// apart is a gradient of w that is added when the batch is complete, since another op
// of a pass adds to its gradient: the cut of a batch into passes must not decide the
// order.
func (t *Tape) apart(op string, w tensor.Tensor, rows int) tensor.Tensor {
	if !t.vector(op, w, rows).Valid() {
		return tensor.Tensor{}
	}
	p := t.params.tensors[placeOf(w)]
	t.fail(p.needTable(t.params))
	return p.table
}

func (t *Tape) GELU(dst, x tensor.Tensor) {
	if !t.writes("GELU", dst) {
		return
	}
	a, g := t.archive()
	if a == nil {
		return
	}
	a.GELU(dst, x)
	t.record(func() { g.GELUGrad(t.grad(x), t.grad(dst), x) })
}

func (t *Tape) ExactTier(_, _, _ tensor.Tensor, _ backend.Plan, _ int, _ *backend.ExactParams) {
	t.refuse("ExactTier", "train without an exact tier")
}

func (t *Tape) Blend(_, _, _, _ tensor.Tensor) {
	t.refuse("Blend", "train without an exact tier")
}

func (t *Tape) MassMerge(_, _, _, _, _ tensor.Tensor) {
	t.refuse("MassMerge", "train without an exact tier")
}

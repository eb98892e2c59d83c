package backend

import (
	"fmt"

	"samebit/tensor"
)

// checkArchive is CheckPlan of a segment's window and archive.
func checkArchive(i int, s *Seg) error {
	a := s.Archive
	if a.Slot < 0 || a.Slot > s.Slot || (s.Slot-a.Slot)%Page != 0 || len(a.Window)*Page < a.Slot+s.Rows {
		return fmt.Errorf("backend: Plan: segment %d has slot %d, %d rows and %d window pages that begin %d slots later: want whole pages between and room for the rows",
			i, s.Slot, s.Rows, len(a.Window), s.Slot-a.Slot)
	}
	if len(a.Window) > 0 && a.Window[0].Dims() == 4 && a.Window[0].Dim(0)%2 != 0 {
		return fmt.Errorf("backend: Plan: window pages of segment %d, %v, have an odd number of planes: want two for each layer's keys and values, and an even number for addresses", i, a.Window[0])
	}
	for j := range a.Window {
		f := a.Window[0]
		if err := first(want("Plan", "window page", a.Window[j], tensor.F32, f.Dim(0), f.Dim(1), Page, f.Dim(3)), whole("Plan", "window page", a.Window[j])); err != nil {
			return err
		}
	}
	in, out := a.In.Tensors(), a.Out.Tensors()
	for j := range in {
		if !in[j].Valid() && !out[j].Valid() {
			continue
		}
		if err := first(CheckCopy(*out[j], *in[j]), whole("Plan", "archive", *in[j]), whole("Plan", "archive", *out[j])); err != nil {
			return err
		}
		if in[j].DType() != tensor.F32 {
			return fmt.Errorf("backend: Plan: archive %v of segment %d: want F32", *in[j], i)
		}
	}
	return nil
}

// checkWindow checks that every segment has window pages for a layer of so many
// heads.
func checkWindow(op string, p Plan, rows, layer, heads, d int, raw bool) error {
	if p == nil || p.Rows() != rows {
		return fmt.Errorf("backend: %s: %d rows, the plan has others", op, rows)
	}
	segs := p.Segs()
	for i := range segs {
		a := segs[i].Archive
		if a == nil || len(a.Window) == 0 {
			return fmt.Errorf("backend: %s: segment %d has no window", op, i)
		}
		planes := a.Window[0].Dim(0)
		if layer < 0 || layer >= planes/2 || a.Raw > 0 && 2*layer+1 >= a.Raw || a.Window[0].Dim(1) != heads || a.Window[0].Dim(3) != d {
			return fmt.Errorf("backend: %s: layer %d with %d heads of %d does not fit the window pages of segment %d, %v", op, layer, heads, d, i, a.Window[0])
		}
		if a.Raw < 0 || raw && a.Raw == 0 || a.Raw > 0 && a.Raw >= planes-layer {
			return fmt.Errorf("backend: %s: the window pages of segment %d have no addresses for layer %d", op, i, layer)
		}
	}
	return nil
}

// windowHeads is the number of key heads of a plan's windows.
func windowHeads(p Plan) int {
	if p == nil || len(p.Segs()) == 0 || p.Segs()[0].Archive == nil || len(p.Segs()[0].Archive.Window) == 0 {
		return 0
	}
	return p.Segs()[0].Archive.Window[0].Dim(1)
}

func divides(op string, groups, heads int) error {
	if groups > 0 && heads%groups == 0 {
		return nil
	}
	return fmt.Errorf("backend: %s: %d heads do not divide among %d", op, heads, groups)
}

func (w WindowParams) check(op string) error {
	if w.Window < 1 || w.Window > maxSlot || w.Sinks < 0 || w.Sinks > w.Window {
		return fmt.Errorf("backend: %s: window of %d slots with %d sinks: want 1 to %d slots, and no more sinks than slots", op, w.Window, w.Sinks, maxSlot)
	}
	return nil
}

// CheckPutWindow checks the shapes of PutWindow.
func CheckPutWindow(p Plan, layer int, k, v, raw tensor.Tensor) error {
	if err := CheckHeads("PutWindow", k, v); err != nil {
		return err
	}
	if raw.Valid() {
		if err := CheckHeads("PutWindow", k, raw); err != nil {
			return err
		}
	}
	return checkWindow("PutWindow", p, k.Dim(0), layer, k.Dim(1), k.Dim(2), raw.Valid())
}

// checkGap checks that nothing a row sees has been left out of the pages.
func checkGap(op string, p Plan, w WindowParams) error {
	segs := p.Segs()
	for i := range segs {
		s := &segs[i]
		skip := s.Slot - s.Archive.Slot
		if sinks := (w.Sinks + Page - 1) / Page * Page; skip > 0 && s.Archive.Slot-w.Window < sinks {
			return fmt.Errorf("backend: %s: segment %d left out %d slots, of which a window of %d at slot %d needs some", op, i, skip, w.Window, s.Slot)
		}
	}
	return nil
}

// CheckWindowAttention checks the shapes of WindowAttention.
func CheckWindowAttention(dst, mass, q tensor.Tensor, p Plan, layer int, w WindowParams) error {
	const op = "WindowAttention"
	if err := first(CheckHeads(op, dst, q), w.check(op), divides(op, windowHeads(p), q.Dim(1)),
		checkWindow(op, p, q.Dim(0), layer, windowHeads(p), q.Dim(2), false)); err != nil {
		return err
	}
	if mass.Valid() {
		if err := want(op, "mass", mass, tensor.F32, q.Dim(0), q.Dim(1)); err != nil {
			return err
		}
	}
	return checkGap(op, p, w)
}

func wantState(op, name string, in, out tensor.Tensor, layer int, dims ...int) error {
	for _, t := range [2]tensor.Tensor{in, out} {
		if err := want(op, name, t, tensor.F32, append([]int{-1}, dims...)...); err != nil {
			return err
		}
		if layer < 0 || layer >= t.Dim(0) {
			return fmt.Errorf("backend: %s: %s %v has no layer %d", op, name, t, layer)
		}
	}
	return nil
}

// checkTensors checks the parameters of an archive that queries of so many heads of
// width d read and so many key heads write.
func (w *ArchiveParams) checkTensors(op string, heads, kv, d int) error {
	if err := first(want(op, "codes", w.Codes, tensor.F32, -1, -1, d), whole(op, "codes", w.Codes)); err != nil {
		return err
	}
	a, m, s := w.Codes.Dim(0), w.Codes.Dim(1), len(w.Decay)
	if err := first(divides(op, a, heads), divides(op, kv, a), want(op, "mix", w.Mix, tensor.F32, a, m, s), whole(op, "mix", w.Mix)); err != nil {
		return err
	}
	if m < 1 || s < 1 || len(w.Gain) != s || w.Active < 0 || w.Active > m || w.Lazy && w.Active == 0 || w.Lazy && w.Features {
		return fmt.Errorf("backend: %s: %d codes, %d of them active, %d decays and %d gains, lazy %v, features %v do not go together", op, m, w.Active, s, len(w.Gain), w.Lazy, w.Features)
	}
	if w.CorrV.Valid() {
		r := w.CorrV.Dim(w.CorrV.Dims() - 1)
		if err := first(want(op, "corrV", w.CorrV, tensor.F32, a, d, r), want(op, "corrU", w.CorrU, tensor.F32, a, r, d), want(op, "corrScale", w.CorrScale, tensor.F32, a, r, s),
			whole(op, "corrV", w.CorrV), whole(op, "corrU", w.CorrU), whole(op, "corrScale", w.CorrScale)); err != nil {
			return err
		}
	}
	if w.Landmarks == PersistentLandmarks {
		return want(op, "landmarkMix", w.LandmarkMix, tensor.F32, a)
	}
	return nil
}

// CheckArchiveScan checks the shapes of ArchiveScan.
func CheckArchiveScan(dst, q tensor.Tensor, p Plan, layer int, w *ArchiveParams) error {
	const op = "ArchiveScan"
	if w == nil {
		return fmt.Errorf("backend: %s: no parameters", op)
	}
	kv, d := windowHeads(p), q.Dim(q.Dims()-1)
	if err := first(CheckHeads(op, dst, q), w.check(op), w.checkTensors(op, q.Dim(1), kv, d), checkWindow(op, p, q.Dim(0), layer, kv, d, false)); err != nil {
		return err
	}
	if err := checkGap(op, p, w.WindowParams); err != nil {
		return err
	}
	a, m, s := w.Codes.Dim(0), w.Codes.Dim(1), len(w.Decay)
	if w.Reuse && w.Stride < 1 {
		return fmt.Errorf("backend: %s: reads with a stride of %d rows: want at least 1", op, w.Stride)
	}
	segs := p.Segs()
	for i := range segs {
		in, out := &segs[i].Archive.In, &segs[i].Archive.Out
		err := first(wantState(op, "numerators", in.Num, out.Num, layer, a, m*s, d), wantState(op, "denominators", in.Den, out.Den, layer, a, m*s))
		if err == nil && w.Lazy {
			err = wantState(op, "last writes", in.Last, out.Last, layer, a, m)
		}
		if err == nil && w.Landmarks != NoLandmarks {
			err = first(wantState(op, "landmark keys", in.LandKey, out.LandKey, layer, a, m, d), wantState(op, "landmark values", in.LandValue, out.LandValue, layer, a, m, d),
				wantState(op, "landmark scores", in.LandScore, out.LandScore, layer, a, m))
		}
		if err == nil && w.Reuse {
			err = first(wantState(op, "last query", in.ReadQuery, out.ReadQuery, layer, q.Dim(1), d), wantState(op, "last read", in.ReadValue, out.ReadValue, layer, q.Dim(1), d),
				wantState(op, "mark", in.ReadMark, out.ReadMark, layer, 2))
		}
		if err == nil && w.Lexical && segs[i].Archive.Raw == 0 {
			err = fmt.Errorf("backend: %s: the window pages of segment %d have no addresses", op, i)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// CheckExactTier checks the shapes of ExactTier.
func CheckExactTier(dst, weight, q tensor.Tensor, p Plan, layer int, w *ExactParams) error {
	const op = "ExactTier"
	if w == nil {
		return fmt.Errorf("backend: %s: no parameters", op)
	}
	if err := first(CheckHeads(op, dst, q), w.check(op), want(op, "weight", weight, tensor.F32, q.Dim(0), q.Dim(1)), divides(op, windowHeads(p), q.Dim(1)),
		checkWindow(op, p, q.Dim(0), layer, windowHeads(p), q.Dim(2), false)); err != nil {
		return err
	}
	if err := checkGap(op, p, w.WindowParams); err != nil {
		return err
	}
	h, d := q.Dim(1), q.Dim(2)
	if w.Sets < 1 || w.Ways < 1 || w.Probe < 1 || w.Probe > w.Sets || w.Sets > maxSlot/w.Ways {
		return fmt.Errorf("backend: %s: %d sets of %d, %d of them probed", op, w.Sets, w.Ways, w.Probe)
	}
	var err error
	if !w.QualityFirst {
		err = first(want(op, "admKey", w.AdmKey, tensor.F32, h, d), want(op, "admValue", w.AdmValue, tensor.F32, h, d), want(op, "admBias", w.AdmBias, tensor.F32, h),
			whole(op, "admKey", w.AdmKey), whole(op, "admValue", w.AdmValue))
	}
	if err == nil && !w.Mass {
		err = want(op, "mix", w.Mix, tensor.F32, h)
	}
	if err == nil && w.Probe < w.Sets {
		err = first(want(op, "setCodes", w.SetCodes, tensor.F32, h, w.Sets, d), whole(op, "setCodes", w.SetCodes))
	}
	segs := p.Segs()
	for i := 0; i < len(segs) && err == nil; i++ {
		in, out, c := &segs[i].Archive.In, &segs[i].Archive.Out, w.Sets*w.Ways
		err = first(wantState(op, "keys", in.Key, out.Key, layer, h, c, d), wantState(op, "values", in.Value, out.Value, layer, h, c, d),
			wantState(op, "scores", in.Score, out.Score, layer, h, c), wantState(op, "ages", in.Age, out.Age, layer, h, c), wantState(op, "next slots", in.Next, out.Next, layer, h))
	}
	return err
}

// CheckGateMix checks the shapes of GateMix.
func CheckGateMix(dst, local, remote, gate, promote tensor.Tensor, p Plan, w GateParams) error {
	const op = "GateMix"
	if err := CheckHeads(op, dst, local, remote); err != nil {
		return err
	}
	if p == nil || p.Rows() != dst.Dim(0) {
		return fmt.Errorf("backend: %s: dst is %v, the plan has other rows", op, dst)
	}
	for _, t := range [2]tensor.Tensor{gate, promote} {
		if t.Valid() {
			if err := want(op, "weights", t, tensor.F32, dst.Dim(0), dst.Dim(1)); err != nil {
				return err
			}
		}
	}
	return nil
}

// CheckBlend checks the shapes of Blend.
func CheckBlend(dst, x, y, a tensor.Tensor) error {
	return first(CheckHeads("Blend", dst, x, y), want("Blend", "a", a, tensor.F32, dst.Dim(0), dst.Dim(1)))
}

// CheckMassMerge checks the shapes of MassMerge.
func CheckMassMerge(dst, local, massLocal, exact, massExact tensor.Tensor) error {
	return first(CheckHeads("MassMerge", dst, local, exact), want("MassMerge", "mass", massLocal, tensor.F32, dst.Dim(0), dst.Dim(1)),
		want("MassMerge", "mass", massExact, tensor.F32, dst.Dim(0), dst.Dim(1)))
}

// CheckQueryCorrection checks the shapes of QueryCorrection.
func CheckQueryCorrection(dst, q, v, u tensor.Tensor) error {
	const op = "QueryCorrection"
	if err := first(CheckHeads(op, dst, q), want(op, "v", v, tensor.F32, -1, q.Dim(2), -1), whole(op, "v", v)); err != nil {
		return err
	}
	return first(divides(op, v.Dim(0), q.Dim(1)), want(op, "u", u, tensor.F32, v.Dim(0), v.Dim(2), q.Dim(2)), whole(op, "u", u))
}

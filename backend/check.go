package backend

import (
	"fmt"

	"samebit/tensor"
)

// The Check functions hold the shape rules of the ops, so that every device
// refuses the same calls with the same words. They allocate only to report.

func want(op, name string, t tensor.Tensor, dt tensor.DType, dims ...int) error {
	ok := t.Valid() && t.DType() == dt && t.Dims() == len(dims)
	for i := 0; ok && i < len(dims); i++ {
		ok = dims[i] < 0 || t.Dim(i) == dims[i]
	}
	if ok {
		return nil
	}
	shape := ""
	for i, d := range dims {
		if i > 0 {
			shape += ", "
		}
		if d < 0 {
			shape += "*"
		} else {
			shape += fmt.Sprint(d)
		}
	}
	return fmt.Errorf("backend: %s: %s is %v, want %v[%s]", op, name, t, dt, shape)
}

// wantRows is want for F32 operands of any shape with dims axes; a pass may have
// no rows, but a row has at least one value.
func wantRows(op, name string, t tensor.Tensor, dims int) error {
	any := [3]int{-1, -1, -1}
	if err := want(op, name, t, tensor.F32, any[:dims]...); err != nil {
		return err
	}
	for i := 1; i < dims; i++ {
		if t.Dim(i) == 0 {
			return fmt.Errorf("backend: %s: %s is %v: a row must have values", op, name, t)
		}
	}
	return nil
}

// whole checks that t has no gaps.
func whole(op, name string, t tensor.Tensor) error {
	if t.Contiguous() {
		return nil
	}
	return fmt.Errorf("backend: %s: %s %v has gaps between its rows: want it contiguous", op, name, t)
}

func first(errs ...error) error {
	for _, e := range errs {
		if e != nil {
			return e
		}
	}
	return nil
}

func weight(op, name string, w Weight) error {
	if w == nil {
		return fmt.Errorf("backend: %s: %s is nil", op, name)
	}
	return nil
}

// CheckPack reports whether w can be packed: [N, K] with at least one value.
func CheckPack(w tensor.Tensor, use Use) error {
	if !w.Valid() || w.Dims() != 2 || w.Len() == 0 || !w.Contiguous() {
		return fmt.Errorf("backend: Pack: %v is not a contiguous matrix", w)
	}
	if dt := w.DType(); dt != tensor.F32 && dt != tensor.BF16 && dt != tensor.F16 && !dt.Quantised() {
		return fmt.Errorf("backend: Pack: weights of type %v: %w", dt, ErrUnsupported)
	}
	if use == 0 {
		return fmt.Errorf("backend: Pack: no use given for %v", w)
	}
	return nil
}

// CheckEmbed checks the shapes of Embed.
func CheckEmbed(dst tensor.Tensor, table Weight, ids tensor.Tensor) error {
	if err := weight("Embed", "table", table); err != nil {
		return err
	}
	return first(want("Embed", "ids", ids, tensor.I32, -1), want("Embed", "dst", dst, tensor.F32, ids.Dim(0), table.In()))
}

// CheckLinear checks the shapes of Linear.
func CheckLinear(dst, x tensor.Tensor, w Weight) error {
	if err := weight("Linear", "w", w); err != nil {
		return err
	}
	return first(want("Linear", "x", x, tensor.F32, -1, w.In()), want("Linear", "dst", dst, tensor.F32, x.Dim(0), w.Out()))
}

// CheckLinears checks the shapes of Linears.
func CheckLinears(dst []tensor.Tensor, x tensor.Tensor, w []Weight) error {
	if len(dst) != len(w) {
		return fmt.Errorf("backend: Linears: %d weights and %d tensors for their products", len(w), len(dst))
	}
	for i := range w {
		if err := CheckLinear(dst[i], x, w[i]); err != nil {
			return err
		}
	}
	return nil
}

// CheckLinearRows checks the shapes of LinearRows.
func CheckLinearRows(dst, x tensor.Tensor, w Weight, rows tensor.Tensor) error {
	if err := weight("LinearRows", "w", w); err != nil {
		return err
	}
	return first(want("LinearRows", "x", x, tensor.F32, -1, w.In()), want("LinearRows", "rows", rows, tensor.I32, -1),
		want("LinearRows", "dst", dst, tensor.F32, x.Dim(0), rows.Dim(0)))
}

// CheckProject checks the shapes of Project.
func CheckProject(dst, x, w tensor.Tensor) error {
	return first(want("Project", "w", w, tensor.F32, -1, -1), wantRows("Project", "x", x, 2), want("Project", "x", x, tensor.F32, -1, w.Dim(1)),
		want("Project", "dst", dst, tensor.F32, x.Dim(0), w.Dim(0)))
}

// CheckRows checks that all tensors are [R, C] like the first, C at least 1.
func CheckRows(op string, dst tensor.Tensor, more ...tensor.Tensor) error {
	if err := wantRows(op, "dst", dst, 2); err != nil {
		return err
	}
	for i := range more {
		if err := want(op, "operand", more[i], tensor.F32, dst.Dim(0), dst.Dim(1)); err != nil {
			return err
		}
	}
	return nil
}

// CheckHeads checks that all tensors are [R, H, D] like the first, H and D at
// least 1.
func CheckHeads(op string, dst tensor.Tensor, more ...tensor.Tensor) error {
	if err := wantRows(op, "dst", dst, 3); err != nil {
		return err
	}
	for i := range more {
		if err := want(op, "operand", more[i], tensor.F32, dst.Dim(0), dst.Dim(1), dst.Dim(2)); err != nil {
			return err
		}
	}
	return nil
}

// CheckSame checks that all tensors are F32 and of the first one's shape, with
// two or three axes.
func CheckSame(op string, dst tensor.Tensor, more ...tensor.Tensor) error {
	if dst.Dims() == 3 {
		return CheckHeads(op, dst, more...)
	}
	return CheckRows(op, dst, more...)
}

// CheckVector checks that v is F32 [n].
func CheckVector(op, name string, v tensor.Tensor, n int) error {
	return want(op, name, v, tensor.F32, n)
}

// CheckGather checks the shapes of Gather.
func CheckGather(dst, x, rows tensor.Tensor) error {
	return first(wantRows("Gather", "x", x, 2), want("Gather", "rows", rows, tensor.I32, -1),
		want("Gather", "dst", dst, tensor.F32, rows.Dim(0), x.Dim(1)))
}

// CheckSumRows checks the shapes of SumRows.
func CheckSumRows(p Plan, x tensor.Tensor) error {
	if err := wantRows("SumRows", "x", x, 2); err != nil {
		return err
	}
	if p == nil || p.Rows() != x.Dim(0) {
		return fmt.Errorf("backend: SumRows: x is %v, the plan has other rows", x)
	}
	segs := p.Segs()
	for i := range segs {
		if err := first(want("SumRows", "sum", segs[i].SumIn, tensor.F32, x.Dim(1)), want("SumRows", "sum", segs[i].SumOut, tensor.F32, x.Dim(1))); err != nil {
			return err
		}
	}
	return nil
}

// CheckCopy checks that src fits dst.
func CheckCopy(dst, src tensor.Tensor) error {
	if !dst.Valid() || !src.Valid() || dst.DType() != src.DType() || dst.Dims() != src.Dims() || dst.DType().Quantised() {
		return fmt.Errorf("backend: Copy: %v to %v", src, dst)
	}
	for i := range dst.Dims() {
		if dst.Dim(i) != src.Dim(i) {
			return fmt.Errorf("backend: Copy: %v to %v", src, dst)
		}
	}
	return nil
}

// CheckArgMax checks the shapes of ArgMax.
func CheckArgMax(dst, x tensor.Tensor) error {
	return first(wantRows("ArgMax", "x", x, 2), want("ArgMax", "dst", dst, tensor.I32, x.Dim(0)))
}

const (
	limit   = 1 << 24 // of positions: they must be exact in float32
	maxSlot = 1 << 30
)

// CheckPlan checks that segments are contiguous from row 0 and that their pages
// hold their rows and have one storage type.
func CheckPlan(segs []Seg) error {
	row, pages := 0, tensor.Invalid
	for i := range segs {
		s := &segs[i]
		if s.Row != row || s.Rows < 1 || s.Rows > limit || s.Slot < 0 || s.Slot > maxSlot || s.Pos < 0 || s.Pos > limit-s.Rows {
			return fmt.Errorf("backend: Plan: segment %d has %d rows from %d on, slot %d, position %d: want contiguous rows from %d, slots to 2^30 and positions below 2^24",
				i, s.Rows, s.Row, s.Slot, s.Pos, row)
		}
		row += s.Rows
		if row > maxSlot {
			return fmt.Errorf("backend: Plan: %d rows in %d segments: want at most 2^30", row, i+1)
		}
		if len(s.KV) > 0 && len(s.KV)*Page < s.Slot+s.Rows {
			return fmt.Errorf("backend: Plan: segment %d has %d pages for %d slots", i, len(s.KV), s.Slot+s.Rows)
		}
		for j := range s.KV {
			if pages == tensor.Invalid {
				pages = pageType(s.KV[0])
			}
			if err := first(want("Plan", "page", s.KV[j], pages, s.KV[0].Dim(0), s.KV[0].Dim(1), Page, s.KV[0].Dim(3)),
				whole("Plan", "page", s.KV[j])); err != nil {
				return err
			}
		}
		for _, d := range [2]tensor.Tensor{s.DeltaIn, s.DeltaOut} {
			if d.Valid() {
				if err := first(want("Plan", "recurrent state", d, tensor.F32, -1, -1, -1, -1), whole("Plan", "recurrent state", d)); err != nil {
					return err
				}
			}
		}
		for _, d := range [2]tensor.Tensor{s.ConvIn, s.ConvOut} {
			if d.Valid() {
				if err := first(want("Plan", "convolution state", d, tensor.F32, -1, -1, -1), whole("Plan", "convolution state", d)); err != nil {
					return err
				}
			}
		}
		for _, d := range [2]tensor.Tensor{s.SumIn, s.SumOut} {
			if d.Valid() {
				if err := first(want("Plan", "running sum", d, tensor.F32, -1), whole("Plan", "running sum", d)); err != nil {
					return err
				}
			}
		}
		if s.Archive != nil {
			if err := checkArchive(i, s); err != nil {
				return err
			}
		}
	}
	return nil
}

// pageType is the storage type that a page has, or should have.
func pageType(page tensor.Tensor) tensor.DType {
	if dt := page.DType(); dt == tensor.BF16 {
		return dt
	}
	return tensor.F32
}

// CheckPageType refuses, with ErrUnsupported, storage types of pages of keys and values
// that a device does not have.
func CheckPageType(dev Device, dt tensor.DType) error {
	switch {
	case dt == tensor.F32 || dt == tensor.BF16 && dev.Info().BF16Pages:
		return nil
	case dt == tensor.BF16:
		return pageRefused(dev.Name(), dt)
	}
	return fmt.Errorf("backend: pages of keys and values of type %v: want F32 or BF16: %w", dt, ErrUnsupported)
}

func pageRefused(dev string, dt tensor.DType) error {
	return fmt.Errorf("backend: %s has no pages of keys and values in %v: keep them in F32, or run on cpu: %w", dev, dt, ErrUnsupported)
}

// CheckF32Pages is what a device without BF16 pages asks besides CheckPlan and CheckPage.
func CheckF32Pages(dev string, pages ...tensor.Tensor) error {
	for i := range pages {
		if dt := pages[i].DType(); dt != tensor.F32 {
			return pageRefused(dev, dt)
		}
	}
	return nil
}

func checkKV(op string, p Plan, layer, heads, d int) error {
	if p == nil {
		return fmt.Errorf("backend: %s: no plan", op)
	}
	segs := p.Segs()
	for i := range segs {
		s := &segs[i]
		if len(s.KV) == 0 {
			return fmt.Errorf("backend: %s: segment %d has no pages", op, i)
		}
		if pg := s.KV[0]; layer < 0 || 2*layer+1 >= pg.Dim(0) || pg.Dim(1) != heads || pg.Dim(3) != d {
			return fmt.Errorf("backend: %s: layer %d with %d heads of %d does not fit the pages of segment %d, %v", op, layer, heads, d, i, pg)
		}
	}
	return nil
}

// CheckNormRoPE checks the shapes of NormRoPE.
func CheckNormRoPE(dst, x, w tensor.Tensor, rope *RoPE, p Plan) error {
	if err := CheckHeads("NormRoPE", dst, x); err != nil {
		return err
	}
	if w.Valid() {
		if err := want("NormRoPE", "w", w, tensor.F32, x.Dim(2)); err != nil {
			return err
		}
	}
	if rope != nil && 2*len(rope.Inv) > x.Dim(2) {
		return fmt.Errorf("backend: NormRoPE: rotary width %d exceeds the head width %d", 2*len(rope.Inv), x.Dim(2))
	}
	if p == nil || p.Rows() != x.Dim(0) {
		return fmt.Errorf("backend: NormRoPE: x is %v, the plan has other rows", x)
	}
	return nil
}

// CheckPutKV checks the shapes of PutKV.
func CheckPutKV(p Plan, layer int, k, v tensor.Tensor) error {
	if err := CheckHeads("PutKV", k, v); err != nil {
		return err
	}
	if p == nil || p.Rows() != k.Dim(0) {
		return fmt.Errorf("backend: PutKV: k is %v, the plan has other rows", k)
	}
	return checkKV("PutKV", p, layer, k.Dim(1), k.Dim(2))
}

func checkQuery(op string, q tensor.Tensor, p Plan, layer int) error {
	if err := wantRows(op, "q", q, 3); err != nil {
		return err
	}
	if p == nil || p.Rows() != q.Dim(0) {
		return fmt.Errorf("backend: %s: q is %v, the plan has other rows", op, q)
	}
	return checkHeads(op, q, p, layer)
}

// checkHeads checks that the heads of q fit the keys of a plan.
func checkHeads(op string, q tensor.Tensor, p Plan, layer int) error {
	if len(p.Segs()) == 0 {
		return fmt.Errorf("backend: %s: q is %v, the plan has other rows", op, q)
	}
	kv := p.Segs()[0].KV
	if len(kv) == 0 || kv[0].Dim(1) == 0 || q.Dim(1)%kv[0].Dim(1) != 0 {
		return fmt.Errorf("backend: %s: %d query heads do not divide among the key heads of the plan", op, q.Dim(1))
	}
	return checkKV(op, p, layer, kv[0].Dim(1), q.Dim(2))
}

// CheckAttention checks the shapes of Attention.
func CheckAttention(dst, q tensor.Tensor, p Plan, layer int) error {
	return first(checkQuery("Attention", q, p, layer), want("Attention", "dst", dst, tensor.F32, q.Dim(0), q.Dim(1), q.Dim(2)))
}

// CheckAttnWeights checks the shapes of AttnWeights and AttnScores.
func CheckAttnWeights(op string, dst, q tensor.Tensor, p Plan, layer int) error {
	return first(checkQuery(op, q, p, layer), checkWeights(op, dst, q, p))
}

// checkWeights checks that w has a column for every slot.
func checkWeights(op string, w, q tensor.Tensor, p Plan) error {
	if err := want(op, "dst", w, tensor.F32, q.Dim(0), q.Dim(1), -1); err != nil || p == nil {
		return err
	}
	for i, s := range p.Segs() {
		if s.Slot+s.Rows > w.Dim(2) {
			return fmt.Errorf("backend: %s: dst has %d slots, segment %d has %d", op, w.Dim(2), i, s.Slot+s.Rows)
		}
	}
	return nil
}

// CheckAttentionWeights checks the shapes of AttentionWeights.
func CheckAttentionWeights(dst, w, q tensor.Tensor, p Plan, from, layer int) error {
	const op = "AttentionWeights"
	if err := wantRows(op, "q", q, 3); err != nil {
		return err
	}
	if p == nil || from < 0 || from > p.Rows()-q.Dim(0) {
		return fmt.Errorf("backend: %s: q is %v from row %d on, the plan has other rows", op, q, from)
	}
	return first(checkHeads(op, q, p, layer), checkWeights(op, w, q, p), want(op, "dst", dst, tensor.F32, q.Dim(0), q.Dim(1), q.Dim(2)))
}

// CheckMoments checks the shapes of Moments.
func CheckMoments(sum, square, w tensor.Tensor) error {
	const op = "Moments"
	if err := first(wantRows(op, "w", w, 3), want(op, "sum", sum, tensor.F32, -1, w.Dim(2)), whole(op, "sum", sum)); err != nil {
		return err
	}
	if g := sum.Dim(0); g == 0 || w.Dim(1)%g != 0 {
		return fmt.Errorf("backend: %s: %d heads do not divide among the %d rows of sum", op, w.Dim(1), g)
	}
	if !square.Valid() {
		return nil
	}
	return first(want(op, "square", square, tensor.F32, sum.Dim(0), sum.Dim(1)), whole(op, "square", square))
}

// CheckPage checks the shapes of GetPage and PutPage.
func CheckPage(op string, rows, page tensor.Tensor) error {
	if err := first(want(op, "page", page, pageType(page), -1, -1, Page, -1), whole(op, "page", page)); err != nil {
		return err
	}
	if page.Dim(0)%2 != 0 || page.Dim(3) == 0 {
		return fmt.Errorf("backend: %s: page is %v: want keys and values of every layer", op, page)
	}
	if err := want(op, "rows", rows, tensor.F32, page.Dim(0), page.Dim(1), -1, page.Dim(3)); err != nil {
		return err
	}
	if rows.Dim(2) > Page {
		return fmt.Errorf("backend: %s: %d slots in a page of %d", op, rows.Dim(2), Page)
	}
	return nil
}

// maxTaps is the block of a sum of products (numerics.md 2): a filter is one chain.
const maxTaps = 128

// CheckConv checks the shapes of Conv.
func CheckConv(dst, x, w tensor.Tensor, p Plan, layer int) error {
	if err := first(CheckRows("Conv", dst, x), want("Conv", "w", w, tensor.F32, -1, x.Dim(1)), whole("Conv", "w", w)); err != nil {
		return err
	}
	if p == nil || p.Rows() != x.Dim(0) {
		return fmt.Errorf("backend: Conv: x is %v, the plan has other rows", x)
	}
	if taps := w.Dim(0); taps < 1 || taps > maxTaps {
		return fmt.Errorf("backend: Conv: %d taps: want 1 to %d", taps, maxTaps)
	}
	for i, s := range p.Segs() {
		for _, t := range [2]tensor.Tensor{s.ConvIn, s.ConvOut} {
			if err := want("Conv", "state", t, tensor.F32, -1, w.Dim(0)-1, x.Dim(1)); err != nil {
				return err
			}
			if layer < 0 || layer >= t.Dim(0) {
				return fmt.Errorf("backend: Conv: segment %d has no layer %d", i, layer)
			}
		}
	}
	return nil
}

// CheckGatedDelta checks the shapes of GatedDelta.
func CheckGatedDelta(dst, q, k, v, g, beta tensor.Tensor, p Plan, layer int) error {
	if err := first(CheckHeads("GatedDelta", dst, v), CheckHeads("GatedDelta", q, k),
		want("GatedDelta", "g", g, tensor.F32, v.Dim(0), v.Dim(1)), want("GatedDelta", "beta", beta, tensor.F32, v.Dim(0), v.Dim(1))); err != nil {
		return err
	}
	if q.Dim(0) != v.Dim(0) || q.Dim(1) == 0 || v.Dim(1)%q.Dim(1) != 0 {
		return fmt.Errorf("backend: GatedDelta: q is %v, v is %v: value heads must be a multiple of key heads", q, v)
	}
	if p == nil || p.Rows() != v.Dim(0) {
		return fmt.Errorf("backend: GatedDelta: v is %v, the plan has other rows", v)
	}
	for i, s := range p.Segs() {
		for _, t := range [2]tensor.Tensor{s.DeltaIn, s.DeltaOut} {
			if err := want("GatedDelta", "state", t, tensor.F32, -1, v.Dim(1), q.Dim(2), v.Dim(2)); err != nil {
				return err
			}
			if layer < 0 || layer >= t.Dim(0) {
				return fmt.Errorf("backend: GatedDelta: segment %d has no layer %d", i, layer)
			}
		}
	}
	return nil
}

// CheckDeltaGates checks the shapes of DeltaGates.
func CheckDeltaGates(g, beta, a, b, aExp, dtBias tensor.Tensor) error {
	return first(CheckRows("DeltaGates", g, beta, a, b), want("DeltaGates", "aExp", aExp, tensor.F32, g.Dim(1)),
		want("DeltaGates", "dtBias", dtBias, tensor.F32, g.Dim(1)))
}

// CheckRoute checks the shapes of Route.
func CheckRoute(experts, weights, logits tensor.Tensor, k int) error {
	if err := want("Route", "logits", logits, tensor.F32, -1, -1); err != nil {
		return err
	}
	if k < 1 || k > logits.Dim(1) {
		return fmt.Errorf("backend: Route: %d of %d experts", k, logits.Dim(1))
	}
	return first(want("Route", "experts", experts, tensor.I32, logits.Dim(0), k), whole("Route", "experts", experts), want("Route", "weights", weights, tensor.F32, logits.Dim(0), k))
}

// CheckExperts checks the shapes of Experts.
func CheckExperts(dst, x, experts, weights tensor.Tensor, gate, up, down []Weight) error {
	if err := first(CheckRows("Experts", dst, x), want("Experts", "weights", weights, tensor.F32, x.Dim(0), -1),
		want("Experts", "experts", experts, tensor.I32, x.Dim(0), weights.Dim(1)), whole("Experts", "experts", experts)); err != nil {
		return err
	}
	if len(gate) == 0 || len(gate) != len(up) || len(gate) != len(down) {
		return fmt.Errorf("backend: Experts: %d gate, %d up and %d down weights", len(gate), len(up), len(down))
	}
	f := gate[0]
	for e := range gate {
		if gate[e] == nil || up[e] == nil || down[e] == nil || gate[e].In() != x.Dim(1) || up[e].In() != x.Dim(1) ||
			gate[e].Out() != f.Out() || up[e].Out() != f.Out() || down[e].In() != f.Out() || down[e].Out() != x.Dim(1) {
			return fmt.Errorf("backend: Experts: the weights of expert %d do not fit %d inputs", e, x.Dim(1))
		}
	}
	return nil
}

// CheckAddGated checks the shapes of AddGated.
func CheckAddGated(dst, y, x, gate tensor.Tensor) error {
	return first(CheckRows("AddGated", dst, y, x), want("AddGated", "gate", gate, tensor.F32, x.Dim(0), 1))
}

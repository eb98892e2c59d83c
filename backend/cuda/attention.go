package cuda

import (
	"samebit/backend"
	"samebit/backend/cuda/driver"
	"samebit/tensor"
)

// angles are the cosines and sines of a pass's rows, [R, 2, half], made by the host
// once per plan and table.
type angles struct {
	rope   *backend.RoPE
	serial uint64
	host   []float32
	mem    area
}

// ropesKept is how many tables a stream keeps angles of.
const ropesKept = 4

// angles gives the address of the angles of the current plan.
func (s *stream) angles(rope *backend.RoPE) (driver.Ptr, bool) {
	i := 0
	for i < len(s.ropes) && s.ropes[i].rope != rope {
		i++
	}
	if i == len(s.ropes) {
		if i < ropesKept {
			s.ropes = append(s.ropes, angles{})
		} else {
			i = int(s.plan.serial % ropesKept)
		}
		s.ropes[i].rope, s.ropes[i].serial = rope, 0
	}
	a := &s.ropes[i]
	if a.serial == s.plan.serial {
		return a.mem.ptr, true
	}
	half := len(rope.Inv)
	if n := 2 * half * s.plan.rows; cap(a.host) < n {
		a.host = make([]float32, n)
	}
	a.host = a.host[:2*half*s.plan.rows]
	for j := range s.plan.segs {
		g := &s.plan.segs[j]
		for r := range g.Rows {
			v := a.host[2*half*(g.Row+r):][:2*half]
			rope.Angles(v[:half], v[half:], g.Pos+r)
		}
	}
	b := tensor.AsBytes(a.host)
	if !s.room(&a.mem, len(b)) || !s.send(a.mem.ptr, b) {
		return 0, false
	}
	a.serial = s.plan.serial
	return a.mem.ptr, true
}

// turn is where the angles of a rotation lie and how many pairs it turns; none of none.
func (s *stream) turn(rope *backend.RoPE) (table driver.Ptr, half int, ok bool) {
	if rope == nil {
		return 0, 0, true
	}
	table, ok = s.angles(rope)
	return table, len(rope.Inv), ok
}

func (s *stream) NormRoPE(dst, x, w tensor.Tensor, eps float32, rope *backend.RoPE, p backend.Plan) {
	if s.err != nil || s.fails(backend.CheckNormRoPE(dst, x, w, rope, p)) || s.away(dst, x, w) || !s.current(p) || x.Dim(0) == 0 {
		return
	}
	table, half, ok := s.turn(rope)
	if !ok {
		return
	}
	s.view(s.view(s.kernel(), dst), x).Ptr(s.maybe(w)).Int32(int32(x.Dim(2))).Float32(eps).Ptr(table).Int32(int32(half))
	s.perHead("rows", "normRoPE", rowsOf(x))
}

// cache appends the struct Cache of kernels/attention.cu.
func (s *stream) cache(p *driver.Params, layer, heads, d, window int) *driver.Params {
	pl := &s.plan
	var wide int32
	if d%4 == 0 && pl.aligned {
		wide = 1
	}
	return p.Ptr(pl.segAt).Ptr(pl.ofAt).Ptr(pl.pageAt).Int32(int32(layer)).Int32(int32(heads)).Int32(int32(d)).Int32(int32(min(max(window, 0), 1<<30))).Int32(wide).Int32(0)
}

func (s *stream) PutKV(p backend.Plan, layer int, k, v tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckPutKV(p, layer, k, v)) || s.away(k, v) || !s.current(p) {
		return
	}
	s.view(s.view(s.cache(s.kernel(), layer, k.Dim(1), k.Dim(2), 0), k), v)
	s.each("attention", "putKV", k.Dim(1)*k.Dim(2), k.Dim(0))
}

// blocks is the largest number of key blocks that one of the rows sees.
func (s *stream) blocks(window int, all bool) int {
	n := 0
	for i := range s.plan.segs {
		g := &s.plan.segs[i]
		if !all && g.Rows >= tileLeast {
			continue
		}
		own := g.Slot + g.Rows - 1
		most := own/backend.Page + 1
		if window > 0 {
			most = min(most, (window+backend.Page-2)/backend.Page+1)
		}
		n = max(n, most)
	}
	return n
}

// span is the rows of an op: [first, first+n) of the pass, whose operands begin
// with the first of them, or the plan's split rows.
type span struct {
	first, n int
	split    bool
}

// splitArgs is the struct Split of kernels/attention.cu.
type splitArgs struct {
	stats, out, rows  driver.Ptr
	items, hq, blocks int
	first             int
}

func (a *splitArgs) params(p *driver.Params) *driver.Params {
	return p.Ptr(a.stats).Ptr(a.out).Ptr(a.rows).Int32(int32(a.items)).Int32(int32(a.hq)).Int32(int32(a.blocks)).Int32(int32(a.first))
}

// from is view for a tensor whose row 0 is row first of the pass.
func (s *stream) from(p *driver.Params, t tensor.Tensor, first int) *driver.Params {
	back := driver.Ptr(4 * first * t.Stride(0)) // below the buffer: no row before first is touched
	return p.Ptr(s.at(t) - back).Uint64(uint64(t.Stride(0))).Uint64(uint64(t.Stride(1))).Int32(int32(t.Dim(1))).Int32(int32(rowsOf(t)))
}

// split runs attention block by block and merges the blocks in order. A valid dst
// gets the outputs; with final the address of the last maxima and reciprocal sums
// is returned.
func (s *stream) split(dst, q tensor.Tensor, layer int, scale float32, window int, rows span, final bool) (last driver.Ptr, ok bool) {
	heads, d, hq := s.plan.segs[0].KV[0].Dim(1), q.Dim(2), q.Dim(1)
	// rounded up: the next tokens launch the same
	a := splitArgs{items: rows.n, first: rows.first, hq: hq, blocks: (s.blocks(window, !rows.split) + 3) &^ 3}
	if rows.split {
		a.rows, a.items = s.plan.splitAt, s.plan.split
	}
	if a.items == 0 {
		return 0, true
	}
	n, chunks := a.items*hq*a.blocks, 1
	if a.stats, ok = s.tmp(scratchStats, 8*n); !ok {
		return
	}
	if dst.Valid() {
		chunks = (d + 31) / 32
		if a.out, ok = s.tmp(scratchOut, 4*n*d); !ok {
			return
		}
	}
	if final {
		if last, ok = s.tmp(scratchFinal, 8*a.items*hq); !ok {
			return
		}
	}
	group := hq / heads
	name, each := "attendBlocks1", 1
	if group >= 4 {
		name, each = "attendBlocks4", 4
	}
	warps := min(8, (group+each-1)/each)
	for warps > 1 && 4*warps*each*(d+backend.Page) > s.dev.info.Shared {
		warps--
	}
	a.params(s.from(s.cache(s.kernel(), layer, heads, d, window), q, a.first)).Float32(scale)
	items := uint32(min(a.items, maxGrid))
	s.launch("attention", name, [3]uint32{uint32(a.blocks), uint32(heads), items}, [3]uint32{32, uint32(warps), 1}, 4*warps*each*(d+backend.Page))
	p := s.cache(s.kernel(), layer, heads, d, window)
	if !dst.Valid() {
		dst = q // not written: there are no outputs
	}
	a.params(s.from(p, dst, a.first)).Ptr(last)
	s.launch("attention", "mergeBlocks", [3]uint32{uint32(chunks), uint32(hq), items}, [3]uint32{32, 1, 1}, 0)
	return last, s.err == nil
}

func (s *stream) Attention(dst, q tensor.Tensor, p backend.Plan, layer int, scale float32, window int) {
	if s.err != nil || s.fails(backend.CheckAttention(dst, q, p, layer)) || s.away(dst, q) || !s.current(p) || q.Dim(1) == 0 {
		return
	}
	heads, d, hq := s.plan.segs[0].KV[0].Dim(1), q.Dim(2), q.Dim(1)
	if d > 256 { // wider than tiles
		s.split(dst, q, layer, scale, window, span{n: q.Dim(0)}, false)
		return
	}
	if _, ok := s.split(dst, q, layer, scale, window, span{split: true}, false); !ok || s.plan.tiles == 0 {
		return
	}
	if s.dev.fast && d <= fastDim && d%8 == 0 && s.plan.aligned {
		s.fastTiles(dst, q, layer, scale, window)
		return
	}
	name := "attendTile4"
	if d <= 64 {
		name = "attendTile1"
	} else if d <= 128 {
		name = "attendTile2"
	}
	var wide int32
	if d%4 == 0 && q.Stride(0)%4 == 0 && q.Stride(1)%4 == 0 && s.at(q)%16 == 0 {
		wide = 1
	}
	s.view(s.view(s.cache(s.kernel(), layer, heads, d, window), dst), q).Ptr(s.plan.tileAt).Float32(scale).Int32(wide)
	s.launch("attention", name, [3]uint32{uint32(s.plan.tiles), uint32(hq), 1}, [3]uint32{128, 1, 1}, 0)
}

// scores writes the scores of rows from first on, or their weights if last is not 0.
func (s *stream) scores(dst, q tensor.Tensor, layer int, scale float32, window, first int, last driver.Ptr) {
	if q.Dim(0) == 0 || q.Dim(1) == 0 {
		return
	}
	heads, d := s.plan.segs[0].KV[0].Dim(1), q.Dim(2)
	slots := dst.Dim(2)
	s.view(s.view(s.cache(s.kernel(), layer, heads, d, window), dst), q).Float32(scale).Int32(int32(slots)).Ptr(last).Int32(int32(first))
	s.launch("attention", "attnScores", [3]uint32{uint32((slots + backend.Page - 1) / backend.Page), uint32(q.Dim(1)), uint32(min(q.Dim(0), maxGrid))}, [3]uint32{32, 1, 1}, 4*d)
}

func (s *stream) AttnScores(dst, q tensor.Tensor, p backend.Plan, layer int, scale float32, window int) {
	if s.err != nil || s.fails(backend.CheckAttnWeights("AttnScores", dst, q, p, layer)) || s.away(dst, q) || !s.current(p) {
		return
	}
	s.scores(dst, q, layer, scale, window, 0, 0)
}

func (s *stream) AttnWeights(dst, q tensor.Tensor, p backend.Plan, layer int, scale float32, window int) {
	if s.err != nil || s.fails(backend.CheckAttnWeights("AttnWeights", dst, q, p, layer)) || s.away(dst, q) || !s.current(p) || q.Dim(1) == 0 {
		return
	}
	if last, ok := s.split(tensor.Tensor{}, q, layer, scale, window, span{n: q.Dim(0)}, true); ok {
		s.scores(dst, q, layer, scale, window, 0, last)
	}
}

func (s *stream) AttentionWeights(dst, w, q tensor.Tensor, p backend.Plan, first, layer int, scale float32, window int) {
	if s.err != nil || s.fails(backend.CheckAttentionWeights(dst, w, q, p, first, layer)) || s.away(dst, w, q) || !s.current(p) || q.Dim(1) == 0 {
		return
	}
	if last, ok := s.split(dst, q, layer, scale, window, span{first: first, n: q.Dim(0)}, true); ok {
		s.scores(w, q, layer, scale, window, first, last)
	}
}

func (s *stream) Moments(sum, square, w tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckMoments(sum, square, w)) || s.away(sum, square, w) || w.Dim(0) == 0 {
		return
	}
	var squares driver.Ptr
	if square.Valid() {
		squares = s.at(square)
	}
	groups, slots := sum.Dim(0), w.Dim(2)
	s.view(s.kernel().Ptr(s.at(sum)).Ptr(squares), w).Int32(int32(slots)).Int32(int32(w.Dim(1) / groups))
	s.launch("attention", "moments", [3]uint32{uint32((slots + 121) / 122), uint32(groups), 1}, [3]uint32{128, 1, 1}, 0)
}

func (s *stream) GetPage(dst, page tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckPage("GetPage", dst, page)) || s.fails(backend.CheckF32Pages(s.dev.name, page)) || s.away(dst, page) {
		return
	}
	s.page("getPage", page, dst)
}

func (s *stream) PutPage(page, src tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckPage("PutPage", src, page)) || s.fails(backend.CheckF32Pages(s.dev.name, page)) || s.away(page, src) {
		return
	}
	s.page("putPage", page, src)
}

func (s *stream) page(name string, page, rows tensor.Tensor) {
	if n := rows.Len(); n > 0 {
		s.kernel().Ptr(s.at(page)).Ptr(s.at(rows)).Uint64(uint64(rows.Stride(0))).Uint64(uint64(rows.Stride(1))).Uint64(uint64(rows.Stride(2))).
			Int32(int32(rows.Dim(1))).Int32(int32(rows.Dim(2))).Int32(int32(rows.Dim(3))).Uint32(uint32(n))
		s.flat("attention", name, n)
	}
}

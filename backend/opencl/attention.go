package opencl

import (
	"samebit/backend"
	"samebit/tensor"
)

func (s *stream) NormRoPE(dst, x, w tensor.Tensor, eps float32, rope *backend.RoPE, p backend.Plan) {
	if s.err != nil || s.fails(backend.CheckNormRoPE(dst, x, w, rope, p)) || s.away(dst, x, w) || !s.current(p) || rowsOf(x) == 0 {
		return
	}
	half, angles := s.rotation(rope)
	if angles == nil {
		return
	}
	s.begin(rowOps, "norm_rope").u32(x.Dim(2)).view(dst).view(x).maybe(s, w).f32(eps).at(angles, 4).u32(half)
	s.groups(rowsOf(x))
}

// rotation is the number of pairs that are turned and their angles, nil if there is no
// memory. Without a rotation nothing is read of the angles.
func (s *stream) rotation(rope *backend.RoPE) (half int, angles *memory) {
	if rope == nil || len(rope.Inv) == 0 {
		return 0, s.plan.tables
	}
	return len(rope.Inv), s.angles(rope)
}

func (s *stream) PutKV(p backend.Plan, layer int, k, v tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckPutKV(p, layer, k, v)) || s.away(k, v) || !s.current(p) || k.Dim(0) == 0 {
		return
	}
	s.begin(attnOps, "put_kv").tables(&s.plan).u32(layer).u32(k.Dim(1)).u32(k.Dim(2)).view(k).view(v)
	s.end(int(groupSize), k.Dim(2), k.Dim(1), k.Dim(0))
}

// partBytes bounds what a part of the rows of a pass leaves in scratch memory, if it is
// more than one row: the triples of key blocks that wait for their merge, and the arrays of
// archives. How a pass is cut decides no bit.
var partBytes = 32 << 20

// query is what attention and the scores have in common: q holds rows of the pass
// from row first on.
type query struct {
	q      tensor.Tensor
	first  int
	layer  int
	scale  float32
	window int
	heads  int // of keys
}

func (s *stream) query(q tensor.Tensor, first, layer int, scale float32, window int) *query {
	return &query{q, first, layer, scale, min(max(window, 0), 1<<30), s.plan.segs[0].KV[0].Dim(1)}
}

// blocks is the number of key blocks that the row at a slot sees.
func (a *query) blocks(slot int) int {
	n := slot/backend.Page + 1
	if a.window > 0 {
		n -= max(0, slot-a.window+1) / backend.Page
	}
	return n
}

// spans calls f for ranges of rows whose triples fit in scratch memory of some floats,
// each with the most key blocks that a row of it sees.
func (s *stream) spans(a *query, f func(row, rows, blocks, floats int)) {
	per := a.q.Dim(1) * (a.q.Dim(2) + 2)
	end := a.first + a.q.Dim(0)
	row, rows, most := a.first, 0, 0
	for i := range s.plan.segs {
		g := &s.plan.segs[i]
		for r := max(g.Row, a.first); r < min(g.Row+g.Rows, end); r++ {
			n := max(most, a.blocks(g.Slot+r-g.Row))
			if rows > 0 && (rows+1)*n*per*4 > partBytes {
				f(row, rows, most, rows*most*per)
				row, rows, n = r, 0, a.blocks(g.Slot+r-g.Row)
			}
			rows, most = rows+1, n
		}
	}
	if rows > 0 {
		f(row, rows, most, rows*most*per)
	}
}

// attend computes the triples of some rows and merges them to dst; if scores follow,
// also their masses to part at float massAt.
func (s *stream) attend(a *query, row, rows, blocks int, part *memory, dst tensor.Tensor, weigh bool, massAt int64) {
	hq, d := a.q.Dim(1), a.q.Dim(2)
	s.begin(attnOps, "attend").tables(&s.plan).u32(a.layer).u32(a.heads).u32(d).u32(row).u32(a.first).u32(a.window).f32(a.scale).view(a.q).at(part, 4)
	s.end(int(groupSize), int(groupSize)*blocks, hq, rows)
	if s.err != nil {
		return
	}
	c := s.begin(attnOps, "merge").tables(&s.plan).u32(d).u32(row).u32(a.first).u32(a.window).at(part, 4).u32(blocks).maybe(s, dst)
	c.flag(weigh).floats(part, massAt)
	s.end(int(groupSize), int(groupSize), hq, rows)
}

func (s *stream) Attention(dst, q tensor.Tensor, p backend.Plan, layer int, scale float32, window int) {
	if s.err != nil || s.fails(backend.CheckAttention(dst, q, p, layer)) || s.away(dst, q) || !s.current(p) {
		return
	}
	a := s.query(q, 0, layer, scale, window)
	s.spans(a, func(row, rows, blocks, floats int) {
		if part := s.space(floats); part != nil {
			s.attend(a, row, rows, blocks, part, dst, false, 0)
		}
	})
}

func (s *stream) AttnWeights(dst, q tensor.Tensor, p backend.Plan, layer int, scale float32, window int) {
	if s.err != nil || s.fails(backend.CheckAttnWeights("AttnWeights", dst, q, p, layer)) || s.away(dst, q) || !s.current(p) {
		return
	}
	s.weigh(s.query(q, 0, layer, scale, window), tensor.Tensor{}, dst)
}

func (s *stream) AttentionWeights(dst, w, q tensor.Tensor, p backend.Plan, first, layer int, scale float32, window int) {
	if s.err != nil || s.fails(backend.CheckAttentionWeights(dst, w, q, p, first, layer)) || s.away(dst, w, q) || !s.current(p) {
		return
	}
	s.weigh(s.query(q, first, layer, scale, window), dst, w)
}

// weigh writes the weights, and the attention where dst is valid.
func (s *stream) weigh(a *query, dst, w tensor.Tensor) {
	s.spans(a, func(row, rows, blocks, floats int) {
		part := s.space(floats + 2*rows*a.q.Dim(1)) // the masses follow the triples
		if part == nil {
			return
		}
		if s.attend(a, row, rows, blocks, part, dst, true, int64(floats)); s.err == nil {
			s.scores(a, w, row, rows, part, int64(floats))
		}
	})
}

func (s *stream) AttnScores(dst, q tensor.Tensor, p backend.Plan, layer int, scale float32, window int) {
	if s.err != nil || s.fails(backend.CheckAttnWeights("AttnScores", dst, q, p, layer)) || s.away(dst, q) || !s.current(p) {
		return
	}
	a := s.query(q, 0, layer, scale, window)
	s.spans(a, func(row, rows, _, _ int) { s.scores(a, dst, row, rows, nil, 0) })
}

// scores writes the logits of some rows, or with mass their weights.
func (s *stream) scores(a *query, dst tensor.Tensor, row, rows int, mass *memory, massAt int64) {
	if s.err != nil {
		return
	}
	slots := dst.Dim(2)
	c := s.begin(attnOps, "scores").tables(&s.plan).u32(a.layer).u32(a.heads).u32(a.q.Dim(2)).u32(row).u32(a.first).u32(a.window).f32(a.scale).view(a.q)
	c.u32(slots).view(dst).flag(mass != nil)
	if mass != nil {
		c.floats(mass, massAt)
	} else {
		c.mem(s.status).u64(0)
	}
	s.end(int(groupSize), slots, a.q.Dim(1), rows)
}

func (s *stream) Moments(sum, square, w tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckMoments(sum, square, w)) || s.away(sum, square, w) || w.Dim(0) == 0 {
		return
	}
	g, n := sum.Dim(0), w.Dim(2)
	s.begin(attnOps, "moments").u32(n).u32(w.Dim(0)).u32(w.Dim(1)/g).view(sum).maybe(s, square).view(w)
	s.elements(n, g)
}

func (s *stream) GetPage(dst, page tensor.Tensor) { s.page("GetPage", dst, page, dst, page) }
func (s *stream) PutPage(page, src tensor.Tensor) { s.page("PutPage", src, page, page, src) }

// page copies rows between a page and elsewhere; pages lie as their logical shape says.
func (s *stream) page(op string, rows, page, dst, src tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckPage(op, rows, page)) || s.fails(backend.CheckF32Pages(s.dev.Name(), page)) || s.away(rows, page) {
		return
	}
	s.move(rows, dst, src)
}

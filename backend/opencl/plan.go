package opencl

import (
	"encoding/binary"
	"fmt"

	"samebit/backend"
	"samebit/tensor"
)

// plan is a pass's ragged tables, on the device in the layout of arena.cl: a Row for
// each row, a Seg for each segment, and the pages of all segments.
type plan struct {
	segs   []backend.Seg
	rows   int
	tables *memory
	bytes  []byte // what tables holds
	segsAt int    // byte of the first Seg
	pageAt int    // byte of the first page
	ropes  []ropeTable

	archive   *memory // what archive ops need besides, in the layout of window.cl
	archived  bool    // whether it is of this plan
	windowsAt int     // byte of the first window page in it
}

// ropeTable holds the angles of the plan's rows, cosines and sines side by side.
type ropeTable struct {
	rope *backend.RoPE // nil: of an earlier plan
	mem  *memory
}

const (
	rowBytes = 16 // of a Row
	segBytes = 64 // of a Seg
)

func (p *plan) Segs() []backend.Seg { return p.segs }
func (p *plan) Rows() int           { return p.rows }

func (s *stream) Plan(segs []backend.Seg) backend.Plan {
	p := &s.plan
	p.segs, p.rows, p.archived = p.segs[:0], 0, false
	for i := range p.ropes {
		p.ropes[i].rope = nil
	}
	if s.err != nil || s.fails(backend.CheckPlan(segs)) {
		return p
	}
	for i := range segs {
		g := &segs[i]
		if s.fails(backend.CheckF32Pages(s.dev.Name(), g.KV...)) || s.away(g.KV...) || s.away(g.DeltaIn, g.DeltaOut, g.ConvIn, g.ConvOut, g.SumIn, g.SumOut) {
			return p
		}
	}
	rows, pages := 0, 0
	for i := range segs {
		rows, pages = rows+segs[i].Rows, pages+len(segs[i].KV)
	}
	le := binary.LittleEndian
	b := p.bytes[:0]
	for i := range segs {
		for r := range segs[i].Rows {
			b = le.AppendUint32(b, uint32(i))
			b = le.AppendUint32(b, uint32(segs[i].Slot+r))
			b = le.AppendUint32(b, uint32(segs[i].Pos+r))
			b = le.AppendUint32(b, 0)
		}
	}
	p.segsAt = rowBytes * rows
	p.pageAt = p.segsAt + segBytes*len(segs)
	page := 0
	for i := range segs {
		g := &segs[i]
		b = le.AppendUint32(b, uint32(g.Row))
		b = le.AppendUint32(b, uint32(g.Rows))
		b = le.AppendUint32(b, uint32(page))
		b = le.AppendUint32(b, 0)
		for _, t := range [6]tensor.Tensor{g.DeltaIn, g.DeltaOut, g.ConvIn, g.ConvOut, g.SumIn, g.SumOut} {
			b = le.AppendUint64(b, s.ref(t))
		}
		page += len(g.KV)
	}
	for i := range segs {
		for _, t := range segs[i].KV {
			b = le.AppendUint64(b, s.ref(t))
		}
	}
	p.bytes = b
	if p.tables = s.grown(p.tables, len(b)); p.tables == nil || !s.upload(p.tables, 0, b) {
		return p
	}
	p.segs, p.rows = append(p.segs, segs...), rows
	return p
}

// ref names the first byte of a tensor of this device for arena.cl; 0 for none.
func (s *stream) ref(t tensor.Tensor) uint64 {
	b, off := t.Buffer()
	if m, ok := b.(*memory); ok {
		return m.ref(int64(off))
	}
	return 0
}

// current reports whether p is this stream's plan and still whole.
func (s *stream) current(p backend.Plan) bool {
	if q, ok := p.(*plan); !ok || q != &s.plan {
		s.fails(fmt.Errorf("opencl: the plan belongs to another stream"))
		return false
	}
	return true
}

// tables passes the arena and where the plan's tables lie.
func (c *call) tables(p *plan) *call {
	if c.err != nil {
		c.n += maxSlabs + 3
		return c
	}
	return c.arena().u64(p.tables.ref(0)).u64(p.tables.ref(int64(p.segsAt))).u64(p.tables.ref(int64(p.pageAt)))
}

// angles is the table of a rotary embedding for the plan's rows, made once per plan.
func (s *stream) angles(rope *backend.RoPE) *memory {
	p := &s.plan
	at := -1
	for i := range p.ropes {
		if p.ropes[i].rope == rope {
			return p.ropes[i].mem
		}
		if p.ropes[i].rope == nil {
			at = i
		}
	}
	if at < 0 {
		at = len(p.ropes)
		p.ropes = append(p.ropes, ropeTable{})
	}
	h := len(rope.Inv)
	v := make([]float32, 2*h*p.rows)
	for i := range p.segs {
		g := &p.segs[i]
		for r := range g.Rows {
			a := v[2*h*(g.Row+r):]
			rope.Angles(a[:h], a[h:2*h], g.Pos+r)
		}
	}
	t := &p.ropes[at]
	if t.mem = s.grown(t.mem, 4*len(v)); t.mem == nil || !s.upload(t.mem, 0, tensor.AsBytes(v)) {
		return nil
	}
	t.rope = rope
	return t.mem
}

package cuda

import (
	"encoding/binary"
	"fmt"

	"samebit/backend"
	"samebit/backend/cuda/driver"
	"samebit/tensor"
)

// plan keeps the ragged tables of a pass on the device, in one piece: segments
// (struct Seg of kernels/plan.cuh), tiles of rows for attention, the segment of each
// row, the rows whose attention is split, and addresses of pages. The last grow with
// the text; they come last and the piece is rounded up, so that nothing moves.
type plan struct {
	segs []backend.Seg
	rows int

	host   []byte
	spare  []byte // of tables of experts
	mem    area
	serial uint64 // counts plans

	aligned bool // every page begins at a multiple of 16

	tiles, split          int        // tiles; rows not in tiles
	segAt, tileAt, pageAt driver.Ptr // addresses of the tables
	ofAt, splitAt         driver.Ptr
}

func (p *plan) Segs() []backend.Seg { return p.segs }
func (p *plan) Rows() int           { return p.rows }

// tileRows is the number of rows that share the keys of a block in one CTA
// (kernels/attention.cu). A segment with fewer than tileLeast has its blocks
// split over CTAs instead.
const (
	tileRows  = 32
	tileLeast = 8
)

func (s *stream) Plan(segs []backend.Seg) backend.Plan {
	p := &s.plan
	p.segs, p.rows, p.tiles, p.split = p.segs[:0], 0, 0, 0
	p.serial++
	if s.err != nil || s.fails(backend.CheckPlan(segs)) {
		return p
	}
	if len(segs) > maxGrid {
		s.fails(fmt.Errorf("cuda: Plan: %d segments: a pass has at most %d: %w", len(segs), maxGrid, backend.ErrUnsupported))
		return p
	}
	for i := range segs {
		g := &segs[i]
		if s.fails(backend.CheckF32Pages(s.dev.name, g.KV...)) || s.away(g.KV...) || s.away(g.DeltaIn, g.DeltaOut, g.ConvIn, g.ConvOut, g.SumIn, g.SumOut) {
			return p
		}
	}
	p.segs = append(p.segs, segs...)
	if n := len(segs); n > 0 {
		p.rows = segs[n-1].Row + segs[n-1].Rows
		s.list(p.rows == n)
		s.upload(p)
	}
	return p
}

// planPiece is what the size of the tables is rounded up to, in bytes.
const planPiece = 1024

func (s *stream) upload(p *plan) {
	le := binary.LittleEndian
	b := p.host[:0]
	pages := 0
	address := func(b []byte, t tensor.Tensor) []byte {
		var a driver.Ptr
		if t.Valid() {
			a = s.at(t)
		}
		return le.AppendUint64(b, uint64(a))
	}
	for i := range p.segs {
		g := &p.segs[i]
		for _, v := range [4]int{g.Row, g.Rows, g.Slot, pages} {
			b = le.AppendUint32(b, uint32(v))
		}
		for _, t := range [6]tensor.Tensor{g.DeltaIn, g.DeltaOut, g.ConvIn, g.ConvOut, g.SumIn, g.SumOut} {
			b = address(b, t)
		}
		pages += len(g.KV)
	}
	tileAt := len(b)
	for i := range p.segs {
		g := &p.segs[i]
		if g.Rows < tileLeast {
			continue
		}
		for r := 0; r < g.Rows; r += tileRows {
			for _, v := range [4]int{i, r, min(tileRows, g.Rows-r), 0} {
				b = le.AppendUint32(b, uint32(v))
			}
			p.tiles++
		}
	}
	ofAt := len(b)
	for i := range p.segs {
		for range p.segs[i].Rows {
			b = le.AppendUint32(b, uint32(i))
		}
	}
	splitAt := len(b)
	for i := range p.segs {
		g := &p.segs[i]
		if g.Rows >= tileLeast {
			continue
		}
		for r := range g.Rows {
			b = le.AppendUint32(b, uint32(g.Row+r))
			p.split++
		}
	}
	b = append(b, make([]byte, -len(b)&7)...)
	pageAt := len(b)
	p.aligned = true
	for i := range p.segs {
		for _, t := range p.segs[i].KV {
			b = address(b, t)
			p.aligned = p.aligned && s.at(t)%16 == 0
		}
	}
	b = append(b, make([]byte, -len(b)&(planPiece-1))...)
	p.host = b
	if !s.room(&p.mem, len(b)) || !s.send(p.mem.ptr, b) {
		return
	}
	at := func(off int) driver.Ptr { return p.mem.ptr + driver.Ptr(off) }
	p.segAt, p.tileAt, p.pageAt, p.ofAt, p.splitAt = at(0), at(tileAt), at(pageAt), at(ofAt), at(splitAt)
}

// current reports whether p is this stream's plan.
func (s *stream) current(p backend.Plan) bool {
	if q, ok := p.(*plan); !ok || q != &s.plan {
		s.fails(fmt.Errorf("cuda: the plan belongs to another stream"))
		return false
	}
	return true
}

package cpu

import (
	"math"

	"samebit/backend"
	"samebit/tensor"
)

// momentSlots is how many positions of a group of heads make a chunk: its rows stay
// in the first cache.
const momentSlots = 1024

const momentReach = backend.MomentWidth / 2

func (s *stream) Moments(sum, square, w tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckMoments(sum, square, w)) || s.away(sum, square, w) {
		return
	}
	a := &s.attn
	a.sum, a.square, a.w = s.host(sum), matrix{}, s.host(w)
	if square.Valid() {
		a.square = s.host(square)
	}
	if w.Dim(0) > 0 {
		s.run(a.sum.rows*((a.sum.cols+momentSlots-1)/momentSlots), momentsBody)
	}
	a.sum, a.square, a.w = matrix{}, matrix{}, matrix{}
}

// momentsBody does a range of positions of one group, for all rows in turn.
func momentsBody(s *stream, worker, chunk int) {
	a, k := &s.attn, s.dev.vec
	ranges := (a.sum.cols + momentSlots - 1) / momentSlots
	group, p0 := chunk/ranges, chunk%ranges*momentSlots
	p1 := min(p0+momentSlots, a.sum.cols)
	heads := max(a.w.heads, 1) / a.sum.rows
	sum := a.sum.row(group)[p0:p1]
	var square []float32
	if a.square.v != nil {
		square = a.square.row(group)[p0:p1]
	}

	// The mean of a row, over the range and what the max reaches beyond it; where
	// there are no positions, -Inf.
	buf := s.tmp(worker, momentSlots+2*momentReach)[:p1-p0+2*momentReach]
	for i := range momentReach {
		buf[i], buf[len(buf)-1-i] = float32(math.Inf(-1)), float32(math.Inf(-1))
	}
	lo, hi := p0, p1
	if square != nil {
		lo, hi = max(0, p0-momentReach), min(a.sum.cols, p1+momentReach)
	}
	m := buf[lo-p0+momentReach : hi-p0+momentReach]
	for r := range a.w.rows / max(a.w.heads, 1) {
		first := r*a.w.heads + group*heads
		row := a.w.row(first)[lo:hi]
		if heads == 1 {
			copy(m, row)
		} else {
			k.Add(m, row, a.w.row(first + 1)[lo:hi])
			for h := 2; h < heads; h++ {
				k.Add(m, m, a.w.row(first + h)[lo:hi])
			}
			k.Divide(m, m, float32(heads))
		}
		k.Add(sum, sum, buf[momentReach:][:p1-p0])
		if square != nil {
			k.AddSquareMax7(square, buf, backend.MomentScale)
		}
	}
}

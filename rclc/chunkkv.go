package rclc

import (
	"context"

	"samebit/state"
)

// ChunkKV scores positions by the attention of the sender's own last rows, without a
// look at the request, smooths the scores, and keeps chunks, after the method of that
// name. The window of last rows outranks everything before it, but is not protected:
// if the budget does not hold it, a part of it is kept, lowest chunk first.
type ChunkKV struct {
	Chunk  int // positions of a chunk; 0 means 16
	Window int // rows whose attention counts; 0 means 32
	Kernel int // width of the smoothing, odd; 0 means 5
}

func (c ChunkKV) rule() rule {
	return rule{name: "chunkkv", chunks: true, span: or(c.Chunk, 16), window: or(c.Window, 32), kernel: or(c.Kernel, 5)}
}

func (c ChunkKV) Select(ctx context.Context, s *Sender, request []int32, budget int) ([]int, error) {
	return c.rule().choose(ctx, s, request, budget)
}

// Scores returns the score of every position of s; the request is ignored. A sender
// with recurrent layers is run anew up to its window.
func (c ChunkKV) Scores(ctx context.Context, s *Sender, request []int32) ([]float32, error) {
	return c.rule().scores(ctx, s, request)
}

// Floor is row 0 and the latent tail.
func (c ChunkKV) Floor(s *Sender) int { return s.Latent + 1 }

// Name is "chunkkv chunk=16 window=32 kernel=5".
func (c ChunkKV) Name() string { return c.rule().String() }

// before checks the options for a sender of t positions and returns how many lie
// before the window.
func (r rule) before(t int) (int, error) {
	switch {
	case r.span < 1:
		return 0, fail(ErrOption, "bad_span_size", "chunkkv with chunks of %d positions: want at least 1", r.span)
	case r.kernel < 1 || r.kernel%2 == 0:
		return 0, fail(ErrOption, "bad_chunk_options", "chunkkv with a kernel of %d: want an odd number from 1 up", r.kernel)
	case r.window < 1 || t-r.window < 1:
		return 0, fail(ErrSelection, "sender_too_short", "chunkkv with a window of %d rows on a sender of %d: want at least 1, and fewer than the sender has", r.window, t)
	}
	return t - r.window, nil
}

func (r rule) chunkScores(ctx context.Context, s *Sender) ([]float32, error) {
	p, err := r.before(s.Len())
	if err != nil {
		return nil, err
	}
	m := s.Model
	c := newChunks(s.Len(), r.window, m.Info.KVHeads, r.kernel)
	if err := s.capture(ctx, p, append([]state.Row(nil), s.Rows[p:]...), &c.gauge); err != nil {
		return nil, err
	}
	return chunked(c.positions(), r.span)
}

// chunks are the sums of ChunkKV.
type chunks struct {
	gauge
	kernel int
	pos    []float32 // of all positions, the window included
	smooth []float32
	all    []float32
}

func newChunks(t, window, kv, kernel int) *chunks {
	p := t - window
	c := &chunks{gauge: gauge{t: p, rows: window, groups: kv}, kernel: kernel,
		pos: make([]float32, t), smooth: make([]float32, p), all: make([]float32, p)}
	c.layer = c.add
	return c
}

// add takes the sums of one layer. Means over heads come first, as in all sums of
// weights, so that a vector per key head is enough; smoothing is linear.
func (c *chunks) add(sum, _ [][]float32) {
	clear(c.all)
	var top float32
	for _, a := range sum {
		for p := range a {
			a[p] /= float32(c.rows)
		}
		average(c.smooth, a, c.kernel)
		for p, x := range c.smooth {
			if x > top || x != x {
				top = x
			}
			c.all[p] += x
		}
	}
	for p := range c.pos {
		if p < len(c.all) {
			c.pos[p] += c.all[p] / float32(c.groups)
		} else {
			c.pos[p] += top + 1
		}
	}
}

// average writes the sum of width neighbours, those there are, divided by width.
func average(dst, x []float32, width int) {
	reach := (width - 1) / 2
	for p := range dst {
		var sum float32
		for _, v := range x[max(0, p-reach):min(len(x), p+reach+1)] {
			sum += v
		}
		dst[p] = sum / float32(width)
	}
}

// positions finishes the means over layers.
func (c *chunks) positions() []float32 {
	for p := range c.pos {
		c.pos[p] /= float32(c.layers)
	}
	return c.pos
}

// chunked replaces every score by the mean of its chunk.
func chunked(pos []float32, chunk int) ([]float32, error) {
	scores := make([]float32, len(pos))
	for first := 0; first < len(pos); {
		last := len(pos)
		if chunk < last-first {
			last = first + chunk
		}
		mean := float32(meanOf(pos[first:last]))
		for p := first; p < last; p++ {
			if mean-mean != 0 {
				return nil, fail(ErrSelection, "nonfinite_scores", "the score of position %d is %v: the model's attention has overflowed", p, mean)
			}
			scores[p] = mean
		}
		first = last
	}
	return scores, nil
}

package eval

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"samebit/rclc"
)

// Methods that a run can compare. Those of chosen rows take a ratio.
const (
	CacheBack = "cacheback" // the built-in selectors
	QSnap     = "qsnap"
	ChunkKV   = "chunkkv"
	Recent    = "recent" // the last rows
	Random    = "random" // spans drawn by the seed
	Text      = "text"   // as many tokens of text, written by the sender who is shown the question

	Full = "full"     // all documents as text in one prompt
	Gold = "evidence" // the evidence alone as text
	None = "none"     // the question alone
)

// Methods lists all, in the order of tables.
var Methods = []string{CacheBack, QSnap, ChunkKV, Recent, Random, Text, Full, Gold, None}

// chooses reports whether a method chooses rows of the senders, sized whether it
// takes a ratio.
func chooses(method string) bool { return slices.Contains(Methods[:5], method) }
func sized(method string) bool   { return slices.Contains(Methods[:6], method) }

// budget is the number of positions of a sender of t rows at a ratio.
func budget(t, ratio int) int { return (t + ratio - 1) / ratio }

// selector is what scores the positions for a method, nil for those without a model.
func (cfg *Config) selector(method string) rclc.Scorer {
	switch method {
	case CacheBack:
		return rclc.CacheBack{Span: cfg.Span}
	case QSnap:
		return rclc.QSnap{Span: cfg.Span}
	case ChunkKV:
		return rclc.ChunkKV{Chunk: cfg.Span}
	}
	return nil
}

// chosen are the positions that methods choose from the senders of a case, and how
// long scoring took.
type chosen struct {
	rows    [][]int // by sender
	seconds float64
}

// choose scores each sender once per method and selects at every ratio.
func (cfg *Config) choose(ctx context.Context, senders []*rclc.Sender, request []int32, index int, methods []string) (map[key]chosen, error) {
	out := map[key]chosen{}
	for _, method := range methods {
		start := time.Now()
		scores := make([][]float32, len(senders))
		for i, s := range senders {
			var err error
			switch method {
			case Recent:
			case Random:
				scores[i] = randomScores(s.Len(), cfg.Span, cfg.Seed, index, i)
			default:
				scores[i], err = cfg.selector(method).Scores(ctx, s, request)
			}
			if err != nil {
				return nil, fmt.Errorf("eval: case %d, sender %d, %s: %w", index, i, method, err)
			}
		}
		seconds := time.Since(start).Seconds()
		for _, ratio := range cfg.Ratios {
			c := chosen{seconds: seconds}
			for i, s := range senders {
				t := s.Len()
				b := budget(t, ratio)
				var kept []int
				var err error
				switch {
				case b >= t || method == Recent:
					for p := t - b; p < t; p++ {
						kept = append(kept, p)
					}
				default:
					kept, err = rclc.SelectSpans(pinned(scores[i]), b, []int{0}, cfg.Span)
				}
				if err != nil {
					return nil, fmt.Errorf("eval: case %d, sender %d, %s at ratio %d: %w", index, i, method, ratio, err)
				}
				c.rows = append(c.rows, kept)
			}
			out[key{index, method, ratio}] = c
		}
	}
	return out, nil
}

// pinned gives row 0 the largest score, as the built-in selectors do.
func pinned(scores []float32) []float32 {
	out := slices.Clone(scores)
	out[0] = slices.Max(scores)
	return out
}

// randomScores gives whole spans one random score each.
func randomScores(t, span int, seed uint64, index, sender int) []float32 {
	r := rand.New(rand.NewPCG(seed, uint64(index)<<16|uint64(sender)))
	out := make([]float32, t)
	for p := 0; p < t; p += span {
		v := r.Float32()
		for i := p; i < min(p+span, t); i++ {
			out[i] = v
		}
	}
	return out
}

// spans turns rising positions into half-open ranges.
func spans(kept []int) [][2]int {
	out := [][2]int{}
	for _, p := range kept {
		if n := len(out); n > 0 && out[n-1][1] == p {
			out[n-1][1] = p + 1
		} else {
			out = append(out, [2]int{p, p + 1})
		}
	}
	return out
}

// gold returns, for each document, which of its tokens overlap the evidence.
func (c *Case) gold(tok interface{ TokenBytes(int32) []byte }, ids [][]int32) [][]bool {
	out := make([][]bool, len(ids))
	for d, l := range ids {
		out[d] = make([]bool, len(l))
		at := 0
		for i, id := range l {
			next := at + len(tok.TokenBytes(id))
			for _, e := range c.Evidence {
				if e.Document == d && at < e.Stop && next > e.Start {
					out[d][i] = true
				}
			}
			at = next
		}
	}
	return out
}

// recall counts the evidence's positions and those of them that were kept.
func recall(gold [][]bool, kept [][][2]int) (all, have int) {
	for d, l := range gold {
		for p, is := range l {
			if !is {
				continue
			}
			all++
			if slices.ContainsFunc(kept[d], func(s [2]int) bool { return s[0] <= p && p < s[1] }) {
				have++
			}
		}
	}
	return all, have
}

// evidence is the text of the evidence alone.
func (c *Case) evidence() string {
	var out []string
	for _, e := range c.Evidence {
		out = append(out, c.Documents[e.Document][e.Start:e.Stop])
	}
	return strings.Join(out, "\n")
}

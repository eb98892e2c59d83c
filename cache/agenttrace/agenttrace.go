// Package agenttrace makes the requests that agents send, and counts what a cache
// reuses of them.
//
// A conversation is a system prompt with tools, then messages of a user, calls of
// tools and their results. Every call of the model sends all of it, so requests
// grow at their end; now and then the user edits an earlier message, an old tool
// result is shortened, a request is sent again, or the answer comes back as other
// tokens than were generated. The numbers are drawn from a seed: a trace is the
// same everywhere.
package agenttrace

import (
	"math"
	"math/rand/v2"
	"slices"

	"samebit/state"
)

// Config describes a trace. The zero value is 30 conversations of 1,000 to 8,000
// tokens, of which 6 are under way at a time.
type Config struct {
	Seed          uint64
	Conversations int // 0 means 30
	AtOnce        int // 0 means 6
	MinTokens     int // of a conversation at its end; 0 means 1,000
	MaxTokens     int // 0 means 8,000
	Vocab         int // 0 means 50,000
}

// Request is one call of the model.
type Request struct {
	Conversation, Turn int
	What               string // "call", "edit", "shorten" or "again"
	Rows               []state.Row
}

func or(v *int, d int) {
	if *v == 0 {
		*v = d
	}
}

// Generate makes the requests in the order in which they are sent.
func Generate(cfg Config) []Request {
	or(&cfg.Conversations, 30)
	or(&cfg.AtOnce, 6)
	or(&cfg.MinTokens, 1000)
	or(&cfg.MaxTokens, 8000)
	or(&cfg.Vocab, 50000)
	g := &generator{cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 0xa9e47))}
	scale := func(n int) int { return max(1, n*cfg.MaxTokens/8000) }
	for _, n := range []int{420, 730, 900} { // agents differ in their tools
		g.systems = append(g.systems, g.words(scale(n)))
	}
	var open []*conversation
	for next := 0; next < cfg.Conversations || len(open) > 0; {
		for len(open) < cfg.AtOnce && next < cfg.Conversations {
			// As many short conversations as long ones, by ratio.
			n := float64(cfg.MinTokens) * math.Exp2(g.rng.Float64()*math.Log2(float64(cfg.MaxTokens)/float64(cfg.MinTokens)))
			open = append(open, &conversation{id: next, goal: int(n), parts: [][]state.Row{g.systems[g.rng.IntN(len(g.systems))], g.text(15, 120)}})
			next++
		}
		i := g.rng.IntN(len(open))
		if g.turn(open[i]) {
			open = slices.Delete(open, i, i+1)
		}
	}
	return g.out
}

type generator struct {
	cfg     Config
	rng     *rand.Rand
	systems [][]state.Row
	out     []Request
}

// conversation is the text so far: system, user, then answers and tool results in
// turn.
type conversation struct {
	id, turn, goal int
	last           int // index of its last request
	parts          [][]state.Row
}

func (c *conversation) rows() []state.Row { return slices.Concat(c.parts...) }

// words draws n tokens.
func (g *generator) words(n int) []state.Row {
	r := make([]state.Row, n)
	for i := range r {
		r[i].Token = int32(g.rng.IntN(g.cfg.Vocab))
	}
	return r
}

// text draws a message of from to to tokens, short ones more often, scaled to the
// length of the conversations.
func (g *generator) text(from, to int) []state.Row {
	n := float64(from) * math.Exp2(g.rng.Float64()*math.Log2(float64(to)/float64(from)))
	return g.words(max(1, int(n)*g.cfg.MaxTokens/8000))
}

func (g *generator) send(c *conversation, what string) {
	c.last = len(g.out)
	g.out = append(g.out, Request{c.id, c.turn, what, c.rows()})
	c.turn++
}

// turn sends the next request of c and adds what comes back; true when the
// conversation is over.
func (g *generator) turn(c *conversation) (over bool) {
	what := "call"
	switch p := g.rng.Float64(); {
	case c.turn == 0:
	case p < 0.05: // the user changes an earlier message, what followed is gone
		i := 1 + g.rng.IntN(len(c.parts)-1)
		old := c.parts[i]
		c.parts = append(c.parts[:i:i], slices.Concat(old[:g.rng.IntN(len(old))], g.text(10, 80)))
		what = "edit"
	case p < 0.08: // an old result is cut short, what followed stays
		i := 1 + g.rng.IntN(len(c.parts)-1)
		c.parts = slices.Clone(c.parts)
		c.parts[i] = slices.Concat(c.parts[i][:len(c.parts[i])/4], g.words(4))
		what = "shorten"
	case p < 0.16: // the last request is sent again
		last := g.out[c.last]
		g.out = append(g.out, Request{c.id, c.turn, "again", last.Rows})
		c.turn++
		return false
	}
	g.send(c, what)
	answer := g.text(20, 250)
	if g.rng.Float64() < 0.2 { // it comes back as other tokens
		i := g.rng.IntN(len(answer))
		answer = slices.Concat(answer[:i], g.words(len(answer)-i))
	}
	reply := g.text(30, 900) // of a tool
	if g.rng.Float64() < 0.25 {
		reply = g.text(10, 100) // of the user
	}
	c.parts = append(slices.Clip(c.parts), answer, reply)
	n := 0
	for _, p := range c.parts {
		n += len(p)
	}
	return n > c.goal
}

// Common is, for every request, the number of rows that it begins with as some
// earlier one does.
func Common(trace []Request) []int {
	l := make([]int, len(trace))
	for i, r := range trace {
		for _, o := range trace[:i] {
			if n := len(o.Rows); n > l[i] {
				l[i] = max(l[i], same(o.Rows, r.Rows))
			}
		}
	}
	return l
}

func same(a, b []state.Row) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i].Token != b[i].Token {
			return i
		}
	}
	return n
}

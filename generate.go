package samebit

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"samebit/cache"
	"samebit/nn"
	"samebit/sample"
	"samebit/state"
	"samebit/token"
)

// Gen says how text is generated. The zero value is greedy, up to 256 tokens.
type Gen struct {
	MaxTokens int           // 0 means 256
	Sample    sample.Config // how ids are drawn; the zero value is greedy
	Sequence  uint64        // numbers the sequence for the sampler, so that equal seeds can give different texts; a draw depends on it, the seed and the number of tokens before
	Stop      []string      // strings that end the text; they are not part of it
	Ignore    bool          // go on after an end-of-text token
	// Special also shows control tokens.
	Special bool
	// Report, if set, is filled in when the generation ends.
	Report *Report
	// Prefill, if set, is called between the chunks of a long prompt.
	Prefill func(done, total int)
}

// Report says what a generation did.
type Report struct {
	PromptTokens int           // rows that the text follows
	Reused       int           // of these, rows that the sequence already had
	Tokens       int           // generated, an end-of-text token included
	Prefill      time.Duration // until the logits of the first token
	Decode       time.Duration // from there to the end
	Reason       string        // "stop" (end token), "stop string", "length", "context", "cancelled", "error"
}

// Token is one step of a generation, an end-of-text token included. Text may be empty:
// a character can span tokens, what may be the beginning of a stop string is held back,
// and the last token brings what was. All Texts together are the generated text.
type Token struct {
	ID   int32
	Text string
}

func (g *Gen) check() error {
	if g.MaxTokens < 0 {
		return fmt.Errorf("samebit: generate: MaxTokens is %d: want a positive number, or 0 for 256", g.MaxTokens)
	}
	return nil
}

// Generate continues a prompt. The sequence yields tokens as they come; an error
// ends it, wrapping the context's when it was cancelled. Leaving the loop early
// is fine. Special tokens in the prompt count as such: see
// [token.Tokenizer.EncodePlain] for text from strangers.
func (m *Model) Generate(ctx context.Context, prompt string, g Gen) iter.Seq2[Token, error] {
	return m.GenerateIDs(ctx, m.Tokenizer.EncodeSpecial(nil, prompt), g)
}

// GenerateIDs is Generate of a prompt that is tokens already.
func (m *Model) GenerateIDs(ctx context.Context, ids []int32, g Gen) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		done, err := m.use()
		if err != nil {
			yield(Token{}, err)
			return
		}
		defer done()
		r, s, err := m.NewRunner()
		if err != nil {
			yield(Token{}, err)
			return
		}
		defer s.Close()
		defer r.Close()
		m.continueWith(ctx, r, ids, g, yield)
	}
}

// continueWith makes the runner's history the prompt ids, reusing what it has of
// them, and generates.
func (m *Model) continueWith(ctx context.Context, r *nn.Runner, ids []int32, g Gen, yield func(Token, error) bool) {
	if g.Report == nil {
		g.Report = new(Report)
	}
	rep := g.Report
	*rep = Report{PromptTokens: len(ids)}
	fail := func(err error) {
		rep.Reason = "error"
		if ctx.Err() != nil {
			rep.Reason = "cancelled"
		}
		yield(Token{}, err)
	}
	if err := g.check(); err != nil {
		fail(err)
		return
	}
	if len(ids) == 0 {
		fail(fmt.Errorf("samebit: generate: the prompt has no tokens"))
		return
	}
	if n := m.Shape.Context; len(ids) >= n {
		fail(fmt.Errorf("samebit: generate: the prompt has %d tokens and leaves no room in a context of %d: shorten it", len(ids), n))
		return
	}
	smp, err := sample.New(g.Sample, min(m.Tokenizer.Size(), m.Shape.Vocab))
	if err != nil {
		fail(err)
		return
	}
	stops, err := sample.NewStopMatcher(g.Stop)
	if err != nil {
		fail(err)
		return
	}

	start := time.Now()
	r.OnProgress(g.Prefill)
	defer r.OnProgress(nil)
	if rep.Reused, err = m.prefill(ctx, r, ids, g.Prefill); err != nil {
		fail(err)
		return
	}
	rep.Prefill = time.Since(start)
	start = time.Now()
	defer m.keep(r)
	defer func() { rep.Decode = time.Since(start) }()

	limit := g.MaxTokens
	if limit == 0 {
		limit = 256
	}
	text := token.Decoder{Tokenizer: m.Tokenizer, SkipSpecial: !g.Special}
	history := slices.Clone(ids)
	for {
		id, err := smp.Next(r.Logits(), history, g.Sequence, uint64(len(history)))
		if err != nil {
			fail(fmt.Errorf("samebit: generate: token %d: %w", rep.Tokens, err))
			return
		}
		rep.Tokens++
		history = append(history, id)
		reason := "" // to end
		switch {
		case m.Tokenizer.IsStop(id) && !g.Ignore:
			reason = "stop"
		case rep.Tokens == limit:
			reason = "length"
		case r.Len()+1 >= m.Shape.Context:
			reason = "context"
		}
		var piece string
		found := false
		if reason != "stop" {
			piece, found = stops.Push(text.Push(id))
		}
		if reason != "" && !found { // what was held back
			var rest string
			if rest, found = stops.Push(text.Flush()); !found {
				rest += stops.Flush()
			}
			piece += rest
		}
		if found {
			reason = "stop string"
		}
		rep.Reason = reason
		more := yield(Token{ID: id, Text: piece}, nil)
		switch {
		case reason != "":
			return
		case !more:
			rep.Reason = "cancelled"
			return
		}
		if err := m.step(ctx, r, id); err != nil {
			fail(err)
			return
		}
	}
}

// step appends id to the runner's history. Checkpoints make room for its page.
func (m *Model) step(ctx context.Context, r *nn.Runner, id int32) error {
	for {
		err := r.Step(ctx, id)
		if !errors.Is(err, state.ErrNoRoom) || !m.cache.Relieve(ctx) {
			return err
		}
	}
}

// prefill makes ids the runner's history, with the logits of the last, and returns
// how many rows it did not have to run.
func (m *Model) prefill(ctx context.Context, r *nn.Runner, ids []int32, progress func(done, total int)) (reused int, err error) {
	rows := state.Tokens(ids)
	if m.patched != nil && m.patched.Exact() {
		return 0, m.patched.Prefill(ctx, m.pool, r, rows, nn.RunnerConfig{ChunkRows: m.cfg.ChunkRows, Progress: progress})
	}
	if m.cache != nil {
		rep, err := m.cache.Prefill(ctx, m.cacheKey(), r, rows, len(rows)-1)
		return rep.Start, err
	}
	reused = min(common(r.History(), ids), len(ids)-1) // the last row's logits are needed
	if err := r.Truncate(ctx, reused); err != nil {
		return 0, err
	}
	return reused, r.Append(ctx, rows[reused:])
}

func (m *Model) cacheKey() cache.Key { return cache.Key{Model: m.Decoder.ID} }

// keep makes a checkpoint of everything a sequence holds, prompt and answer, from
// which a conversation's next turn goes on.
func (m *Model) keep(r *nn.Runner) {
	if m.cache == nil || r.Len() == 0 {
		return
	}
	snap, err := r.Snapshot()
	if err != nil {
		return // without a checkpoint the next turn takes longer, no more
	}
	defer snap.Release()
	_ = m.cache.Insert(m.cacheKey(), r.History(), snap) // likewise
}

// common is the length of the shared beginning.
func common(rows []state.Row, ids []int32) int {
	n := 0
	for n < min(len(rows), len(ids)) && rows[n].Vec == nil && rows[n].Token == ids[n] {
		n++
	}
	return n
}

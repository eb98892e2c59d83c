package train

import (
	"context"
	"fmt"
	"math"
	"slices"

	"samebit/backend"
	"samebit/internal/canon"
	"samebit/nn"
	"samebit/state"
	"samebit/token"
	"samebit/train/tasks"
)

// Recall says how many questions of a kind and length were answered rightly: a
// greedy continuation gives every token of the answer and ends there.
type Recall struct {
	Kind      tasks.Kind `json:"kind"`
	Rows      int        `json:"rows"` // of the context, about
	Questions int        `json:"questions"`
	Right     int        `json:"right"`
}

// Judgement is how good a model is on what it was not trained on.
type Judgement struct {
	Recall []Recall `json:"recall"`
	Loss   float64  `json:"loss"`  // mean over answer tokens
	Prose  float64  `json:"prose"` // mean loss per token of held-out prose; 0 without any
}

// Share is the part of right answers among the kinds that ask for recall, at one
// length, or at all for 0.
func (j *Judgement) Share(rows int) float64 {
	right, asked := 0, 0
	for _, r := range j.Recall {
		if r.Kind != tasks.Arithmetic && (rows == 0 || r.Rows == rows) {
			right += r.Right
			asked += r.Questions
		}
	}
	if asked == 0 {
		return 0
	}
	return float64(right) / float64(asked)
}

// Perplexity is that of the held-out prose.
func (j *Judgement) Perplexity() float64 { return math.Exp(j.Prose) }

// better compares the loss of answers: shares of a few questions move by whole questions.
func (j *Judgement) better(o *Judgement) bool { return j.Loss < o.Loss }

// JudgeConfig says what a model is asked.
type JudgeConfig struct {
	Seed    uint64
	Lengths []int    // rows of the contexts, about
	Samples int      // tasks of every length, all kinds in turn
	Prose   []string // files, as in Config, whose last twentieth is read
	// Progress, if set, is told how many questions were asked.
	Progress func(done, total int)
}

// Judge asks a model questions with names that no training has seen, and measures
// its loss on held-out prose.
func Judge(ctx context.Context, dev backend.Device, dec *nn.Decoder, tok *token.Tokenizer, c JudgeConfig) (*Judgement, error) {
	for _, control := range tasks.Control {
		if tok.ID(control) < 0 {
			return nil, fmt.Errorf("train: judge: the vocabulary has no token %s: only models with ChatML's tokens can be asked", control)
		}
	}
	for _, n := range c.Lengths {
		if n < 32 || n > dec.Context {
			return nil, fmt.Errorf("train: judge: a length of %d rows: from 32 to the model's context of %d", n, dec.Context)
		}
	}
	prose, _, err := readProse(c.Prose)
	if err != nil {
		return nil, err
	}
	d, err := newData(&Config{Seed: c.Seed}, tok, prose)
	if err != nil {
		return nil, err
	}
	return d.judge(ctx, dev, dec, forReport, c.Lengths, c.Samples, math.MaxInt, c.Progress)
}

// judge asks a model, by number, samples tasks of every length, and reads proseRows
// rows of held-out prose. Which ones follows from use.
func (d *data) judge(ctx context.Context, dev backend.Device, dec *nn.Decoder, use uint64, lengths []int, samples, proseRows int, progress func(done, total int)) (*Judgement, error) {
	pool, err := state.NewPool(dev, 0)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	stream, err := dev.NewStream()
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	c := nn.NewCtx(stream, dev)
	defer c.Close()

	j := new(Judgement)
	var total float64
	tokens, asked := 0, 0
	for _, rows := range lengths {
		found := map[tasks.Kind]*Recall{}
		for _, k := range tasks.Kinds {
			found[k] = &Recall{Kind: k, Rows: rows}
		}
		for i := range samples {
			t := tasks.Config{Seed: d.cfg.seed(use) + uint64(rows), Kinds: tasks.Kinds[i%len(tasks.Kinds):][:1], Questions: 1, HeldOut: true}
			s := d.fit(t, uint64(i), rows, rows)
			ids, answer := d.encode(s)
			at := slices.Index(answer, true)
			losses, first, err := losses(ctx, c, pool, dec, ids, at)
			if err != nil {
				return nil, err
			}
			r := found[s.Kind]
			if asked++; progress != nil {
				progress(asked, len(lengths)*samples)
			}
			r.Questions++
			if first == len(losses) {
				r.Right++
			}
			for _, l := range losses {
				total += l
			}
			tokens += len(losses)
		}
		for _, k := range tasks.Kinds {
			j.Recall = append(j.Recall, *found[k])
		}
	}
	j.Loss = total / float64(max(1, tokens))
	const piece = 512
	total, tokens = 0, 0
	for at := 0; at < len(d.heldOut) && tokens < proseRows; at += piece {
		ids := append([]int32{d.end}, d.heldOut[at:min(at+piece, len(d.heldOut))]...)
		losses, _, err := losses(ctx, c, pool, dec, ids, 1)
		if err != nil {
			return nil, err
		}
		for _, l := range losses {
			total += l
		}
		tokens += len(losses)
	}
	if tokens > 0 {
		j.Prose = total / float64(tokens)
	}
	return j, nil
}

// losses runs ids and returns the losses of ids[at:], and how many of them, from the
// first on, are the model's greedy choice.
func losses(ctx context.Context, c *nn.Ctx, pool *state.Pool, dec *nn.Decoder, ids []int32, at int) ([]float64, int, error) {
	st, err := dec.NewState(pool)
	if err != nil {
		return nil, 0, err
	}
	defer st.Release()
	rows := state.Tokens(ids[:len(ids)-1])
	out := make([]float64, 0, len(ids)-at)
	greedy, all := 0, true
	for done := 0; done < len(rows); {
		n := state.Room(st, len(rows)-done)
		seqs := []nn.Seq{{State: st, In: rows[done : done+n], Want: nn.WantRows}}
		for i := max(at-1, done); i < done+n; i++ {
			seqs[0].At = append(seqs[0].At, i-done)
		}
		if len(seqs[0].At) == 0 {
			seqs[0].Want = nn.WantNone
		}
		if err := dec.Forward(ctx, c, seqs); err != nil {
			return nil, 0, err
		}
		for i, row := range seqs[0].At {
			logits := seqs[0].Logits[i*dec.Vocab : (i+1)*dec.Vocab]
			want := ids[done+row+1]
			top := slices.Max(logits)
			sum := 0.0
			for _, x := range logits {
				sum += float64(canon.Exp(x - top))
			}
			out = append(out, float64(canon.Log(float32(sum)))-float64(logits[want]-top))
			if all = all && slices.Index(logits, top) == int(want); all {
				greedy++
			}
		}
		done += n
	}
	return out, greedy, nil
}

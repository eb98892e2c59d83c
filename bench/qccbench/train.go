package qccbench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"

	"samebit/backend"
	"samebit/grad"
	"samebit/qcc"
	"samebit/qcc/lm"
)

// Toy is a small language model and how it is trained.
type Toy struct {
	Shell
	Window, Codes int
	Threshold     *float64 // of scores that the archive writes; nil: all
	Position      string   // sinusoidal, learned, none, or rope for a rotation
	MaxPosition   int      // longest text
	Steps, Batch  int
	Rate, Decay   float64 // of AdamW; gradients are clipped at a norm of 1
	Progress      func(done, total int)
}

// config is the model's; full has exact attention over the whole text instead of window
// and archive.
func (t Toy) config(full bool) (lm.Config, error) {
	if t.Steps < 1 || t.Batch < 1 || t.Batch > 1<<12 || !(t.Rate > 0) || !(t.Decay >= 0) {
		return lm.Config{}, fmt.Errorf("qccbench: %d steps of %d texts at a rate of %v with a decay of %v: want positive numbers, at most 4096 texts", t.Steps, t.Batch, t.Rate, t.Decay)
	}
	if err := t.Shell.check(); err != nil {
		return lm.Config{}, err
	}
	c := lm.Config{Layer: qcc.DefaultConfig(t.Hidden, t.Heads), Layers: t.Layers, Vocab: t.Vocab, Position: lm.Position(t.Position), MaxPosition: t.MaxPosition}
	if t.Position == "rope" {
		c.Position, c.Layer.RoPE = lm.None, &qcc.RoPE{Theta: 1e6}
	}
	c.Layer.Window, c.Layer.Codes, c.Layer.Threshold, c.Layer.MaxPosition = t.Window, t.Codes, t.Threshold, t.MaxPosition
	if full {
		c = exact(c)
	}
	return c, c.Validate()
}

// exact is the same model with exact attention over the whole text.
func exact(c lm.Config) lm.Config {
	c.Layer.Threshold, c.Layer.NoArchive, c.Layer.Window = nil, true, c.MaxPosition
	return c
}

// both trains the model with window and archive, and with exact attention, on the same
// batches, and scores either on the same other texts. draw makes n texts to train on, or
// to be judged by.
func (t Toy) both(ctx context.Context, dev backend.Device, judged int, draw func(next *rand.Rand, n int, judge bool) []lm.Text) (r [2]Trained, scores [2]lm.Score, err error) {
	for i := range r {
		part := t
		if show := t.Progress; show != nil { // two trainings, shown as one
			part.Progress = func(done, total int) { show(i*total+done, 2*total) }
		}
		next := rand.New(rand.NewPCG(t.Seed, 3))
		r[i], err = part.run(ctx, dev, i == 1, func(int) []lm.Text { return draw(next, t.Batch, false) }, nil, func(x *lm.Trainer) (err error) {
			scores[i], err = x.Score(ctx, draw(rand.New(rand.NewPCG(t.Seed, 4)), judged, true))
			return err
		})
		if err != nil {
			return r, scores, err
		}
	}
	return r, scores, nil
}

// Trained is what a training of either model came to.
type Trained struct {
	Parameters int     `json:"parameters"`
	TrainLoss  float64 `json:"train_loss"` // of the last batch, before its step, nats
	Weights    string  `json:"weights_sha256"`
	Seconds    float64 `json:"seconds"` // of the training
}

// run trains a model from its first parameters on batches, calls after, if given, for
// every batch before its step, and judges what has become of it.
func (t Toy) run(ctx context.Context, dev backend.Device, full bool, batch func(step int) []lm.Text, after func(x *lm.Trainer, s lm.Score) error, judge func(x *lm.Trainer) error) (r Trained, err error) {
	c, err := t.config(full)
	if err != nil {
		return r, err
	}
	p, err := lm.NewParams(c, t.Seed)
	if err != nil {
		return r, err
	}
	x, err := lm.NewTrainer(dev, c, p, grad.AdamWConfig{Decay: t.Decay, Clip: 1})
	if err != nil {
		return r, err
	}
	defer func() {
		if e := x.Close(); err == nil {
			err = e
		}
	}()
	r.Parameters = x.Len()
	for i := range t.Steps {
		var s lm.Score
		spent, err := seconds(func() (err error) {
			if s, err = x.Backward(ctx, batch(i)); err != nil {
				return err
			}
			if after != nil {
				if err := after(x, s); err != nil {
					return err
				}
			}
			return x.Step(t.Rate)
		})
		if err != nil {
			return r, fmt.Errorf("qccbench: step %d: %w", i+1, err)
		}
		r.TrainLoss = float64(s.Loss)
		r.Seconds += spent
		if t.Progress != nil {
			t.Progress(i+1, t.Steps)
		}
	}
	if p, err = x.Params(); err != nil {
		return r, err
	}
	if r.Weights, err = p.Hash(c); err != nil {
		return r, err
	}
	return r, judge(x)
}

// Recall is the text of both retrieval trainings: a marker and a value begin it, and at
// some place the marker comes again, behind which the value should follow.
const (
	marker     = 1
	filler     = 2
	firstValue = 3
)

// recall is a text that ends with the marker at a place.
func recall(value int32, at int) lm.Text {
	x := lm.Text{IDs: make([]int32, at+1), Targets: make([]int32, at+1)}
	for i := range x.IDs {
		x.IDs[i], x.Targets[i] = filler, -1
	}
	x.IDs[0], x.IDs[1], x.IDs[at], x.Targets[at] = marker, value, marker, value
	return x
}

// recalls are seeded texts whose markers lie at places from least to most.
func recalls(next *rand.Rand, n, vocab, least, most int) []lm.Text {
	l := make([]lm.Text, n)
	for i := range l {
		at := least + next.IntN(most-least+1)
		l[i] = recall(firstValue+int32(next.IntN(vocab-firstValue)), at)
	}
	return l
}

// checkRecall refuses places that leave no room.
func (t Toy) checkRecall(length, least, most int) error {
	if length < 8 || length > t.MaxPosition || least < 3 || most < least || most > length-2 {
		return fmt.Errorf("qccbench: texts of %d tokens that ask at %d to %d, for a model of %d positions: want 8 tokens or more, room before and behind the question, and no more tokens than positions", length, least, most, t.MaxPosition)
	}
	if t.Vocab < firstValue+2 {
		return fmt.Errorf("qccbench: a vocabulary of %d: want at least %d, a marker, a filler and values", t.Vocab, firstValue+2)
	}
	return nil
}

// SyntheticConfig is a training on texts that ask for what began them.
type SyntheticConfig struct {
	RunID string
	Toy
	Length int // of the texts, which are cut behind the question, since nothing else counts
	Query  int // where they ask
}

// SyntheticResult has both models, trained alike.
type SyntheticResult struct {
	Head
	Steps  int          `json:"steps"`
	Batch  int          `json:"batch"`
	Length int          `json:"length"`
	Query  int          `json:"query_position"`
	Window int          `json:"window_size"`
	Chance float64      `json:"chance"` // accuracy of a guess among the values
	QCC    RecallResult `json:"qcc"`
	Full   RecallResult `json:"full"`
}

// RecallResult is one model on texts that it was not trained on.
type RecallResult struct {
	Trained
	EvalLoss float64 `json:"eval_loss"`
	Accuracy float64 `json:"accuracy"`
}

// RunSynthetic trains the small model with window and archive, and with exact attention,
// on the same texts from the same seed.
func RunSynthetic(ctx context.Context, dev backend.Device, c SyntheticConfig) (SyntheticResult, error) {
	r := SyntheticResult{Head: head("synthetic_lm", c.RunID, dev), Steps: c.Steps, Batch: c.Batch, Length: c.Length, Query: c.Query, Window: c.Window}
	r.Synthetic, r.MatchedFullKV = true, true
	if err := c.checkRecall(c.Length, c.Query, c.Query); err != nil {
		return r, err
	}
	r.Chance = 1 / float64(c.Vocab-firstValue)
	trained, scores, err := c.both(ctx, dev, max(64, c.Batch), func(next *rand.Rand, n int, _ bool) []lm.Text { return recalls(next, n, c.Vocab, c.Query, c.Query) })
	for i, to := range []*RecallResult{&r.QCC, &r.Full} {
		*to = RecallResult{trained[i], float64(scores[i].Loss), scores[i].Accuracy()}
	}
	return r, err
}

// LearnRetrievalConfig is a training for qcc-evaluate-retrieval.
type LearnRetrievalConfig struct {
	RunID string
	Toy
	Length               int // of the texts, which are cut behind the question, since nothing else counts
	QueryMin, QueryMax   int // where they ask
	EvalLengths          []int
	EvalExamples         int       // of each length
	QueryAt              float64   // where those ask, as a share of the length
	Checkpoint, Examples io.Writer // the model that was kept, and the records it was judged on; nil: nowhere
}

// LearnRetrievalResult is what the kept model does: the one before the step whose batch
// had the lowest loss.
type LearnRetrievalResult struct {
	Head
	Steps  int `json:"steps"`
	Batch  int `json:"batch"`
	Length int `json:"train_length"`
	Window int `json:"window_size"`
	Trained
	BestStep      int             `json:"best_step"`
	BestLoss      float64         `json:"best_loss"` // of its batch
	BestAccuracy  float64         `json:"best_accuracy"`
	FinalLoss     float64         `json:"final_loss"`
	FinalAccuracy float64         `json:"final_accuracy"`
	Kept          string          `json:"kept_weights_sha256"`
	Chance        float64         `json:"chance"` // accuracy of a guess among the values
	Eval          []RecallLengths `json:"eval"`
}

// RecallLengths is a length of texts that the kept model was judged on.
type RecallLengths struct {
	Length   int     `json:"length"`
	Query    int     `json:"query_position"`
	Examples int     `json:"examples"`
	Correct  int     `json:"correct"`
	Accuracy float64 `json:"accuracy"`
}

// RunLearnRetrieval trains the small model to give back a value that has left the window,
// and judges the state of the lowest loss.
func RunLearnRetrieval(ctx context.Context, dev backend.Device, c LearnRetrievalConfig) (LearnRetrievalResult, error) {
	r := LearnRetrievalResult{Head: head("train_synthetic_retrieval", c.RunID, dev), Steps: c.Steps, Batch: c.Batch, Length: c.Length, Window: c.Window, BestLoss: math.Inf(1), Eval: []RecallLengths{}}
	r.Synthetic, r.QCCOnly = true, true
	if err := c.checkRecall(c.Length, c.QueryMin, c.QueryMax); err != nil {
		return r, err
	}
	for _, n := range c.EvalLengths {
		if err := c.checkRecall(n, int(float64(n)*c.QueryAt), int(float64(n)*c.QueryAt)); err != nil {
			return r, err
		}
	}
	if len(c.EvalLengths) > 0 && c.EvalExamples < 1 {
		return r, fmt.Errorf("qccbench: %d texts of each length to judge: want at least one", c.EvalExamples)
	}
	r.Chance = 1 / float64(c.Vocab-firstValue)
	next := rand.New(rand.NewPCG(c.Seed, 3))
	var best *lm.Params
	step := 0
	keep := func(x *lm.Trainer, s lm.Score) (err error) {
		step++
		r.FinalLoss, r.FinalAccuracy = float64(s.Loss), s.Accuracy()
		if r.FinalLoss < r.BestLoss {
			r.BestStep, r.BestLoss, r.BestAccuracy = step, r.FinalLoss, r.FinalAccuracy
			best, err = x.Params()
		}
		return err
	}
	var err error
	r.Trained, err = c.run(ctx, dev, false, func(int) []lm.Text { return recalls(next, c.Batch, c.Vocab, c.QueryMin, c.QueryMax) }, keep, func(*lm.Trainer) error { return nil })
	if err != nil {
		return r, err
	}
	cfg, err := c.config(false)
	if err != nil {
		return r, err
	}
	if best == nil {
		return r, fmt.Errorf("qccbench: no batch had a loss that is a number: lower the learning rate")
	}
	if r.Kept, err = best.Hash(cfg); err != nil {
		return r, err
	}
	if err := c.judge(ctx, dev, cfg, best, &r); err != nil {
		return r, err
	}
	if c.Checkpoint == nil {
		return r, nil
	}
	about, err := json.Marshal(r)
	if err != nil {
		return r, fmt.Errorf("qccbench: what a checkpoint says about itself: %w", err)
	}
	return r, lm.Write(c.Checkpoint, cfg, best, about)
}

// judge asks the kept model for the values of seeded records.
func (c LearnRetrievalConfig) judge(ctx context.Context, dev backend.Device, cfg lm.Config, p *lm.Params, r *LearnRetrievalResult) error {
	m, err := openToy(dev, cfg, p)
	if err != nil {
		return err
	}
	defer m.close()
	next := rand.New(rand.NewPCG(c.Seed, 4))
	for _, n := range c.EvalLengths {
		e := RecallLengths{Length: n, Query: int(float64(n) * c.QueryAt), Examples: c.EvalExamples}
		for range c.EvalExamples {
			x := recalls(next, 1, c.Vocab, e.Query, e.Query)[0]
			logits, err := m.last(ctx, x.IDs, 256)
			if err != nil {
				return err
			}
			value := x.Targets[e.Query]
			if top(logits) == value {
				e.Correct++
			}
			if c.Examples == nil {
				continue
			}
			record := Retrieval{IDs: slices.Concat(x.IDs, []int32{value}, slices.Repeat([]int32{filler}, n-e.Query-2)), Target: e.Query, Answers: []int32{value}}
			if err := json.NewEncoder(c.Examples).Encode(record); err != nil {
				return err
			}
		}
		e.Accuracy = float64(e.Correct) / float64(e.Examples)
		r.Eval = append(r.Eval, e)
	}
	return nil
}

// toy is a small model that answers.
type toy struct {
	*lm.Model
	st *qcc.State
}

func openToy(dev backend.Device, c lm.Config, p *lm.Params) (*toy, error) {
	m, err := lm.New(dev, c, p)
	if err != nil {
		return nil, err
	}
	st, err := m.NewState()
	if err != nil {
		m.Close()
		return nil, err
	}
	return &toy{m, st}, nil
}

func (t *toy) close() error {
	t.st.Release()
	return t.Close()
}

// last are the logits of the last token of a text, which is read in chunks.
func (t *toy) last(ctx context.Context, ids []int32, chunk int) ([]float32, error) {
	t.st.Reset()
	logits := make([]float32, chunk*t.Vocab)
	for len(ids) > 0 {
		n := min(chunk, len(ids))
		logits = logits[:n*t.Vocab]
		if err := t.Decode(ctx, logits, t.st, ids[:n]); err != nil {
			return nil, err
		}
		ids = ids[n:]
	}
	return logits[len(logits)-t.Vocab:], nil
}

// RunToyRetrieval is [RunRetrieval] for a small model that [RunLearnRetrieval] wrote, of
// texts up to maxPosition. With CompareFull the same weights attend exactly.
func RunToyRetrieval(ctx context.Context, dev backend.Device, checkpoint io.Reader, maxPosition int, records io.Reader, c RetrievalConfig) (RetrievalResult, error) {
	r := RetrievalResult{Head: head("evaluate_retrieval", c.RunID, dev), Target: c.Target}
	r.Synthetic, r.QCCOnly, r.MatchedFullKV = true, !c.CompareFull, c.CompareFull
	if c.Chunk < 1 {
		return r, fmt.Errorf("qccbench: chunks of %d rows: want at least one", c.Chunk)
	}
	cfg, p, _, err := lm.Read(checkpoint)
	if err != nil {
		return r, err
	}
	r.Window = cfg.Layer.Window
	if cfg.Position != lm.Learned && maxPosition > 0 {
		cfg.MaxPosition = maxPosition
	}
	own, err := openToy(dev, cfg, p)
	if err != nil {
		return r, err
	}
	defer own.close()
	a := arms{own: func(ids []int32) ([]float32, error) { return own.last(ctx, ids, c.Chunk) }}
	if c.CompareFull {
		full, err := openToy(dev, exact(cfg), p)
		if err != nil {
			return r, err
		}
		defer full.close()
		a.full = func(ids []int32) ([]float32, error) { return full.last(ctx, ids, c.Chunk) }
	}
	err = a.retrieve(records, c, &r)
	return r, err
}

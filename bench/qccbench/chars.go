package qccbench

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"unicode/utf8"

	"samebit/backend"
	"samebit/qcc/lm"
)

// CharsConfig is a training on the characters of a text, the first nine tenths of it.
type CharsConfig struct {
	RunID       string
	Toy                // its vocabulary is that of the text
	Text        string // UTF-8
	Length      int    // characters of a piece
	EvalBatches int    // of the last tenth
}

// CharsResult has both models, trained alike. Unigram is what knowing nothing but how
// often each character comes would give.
type CharsResult struct {
	Head
	Steps      int         `json:"steps"`
	Batch      int         `json:"batch"`
	Length     int         `json:"length"`
	Window     int         `json:"window_size"`
	Characters int         `json:"characters"`
	Vocab      int         `json:"vocab"`
	Judged     int         `json:"valid_tokens"`
	Unigram    float64     `json:"unigram_perplexity"`
	QCC        CharsScores `json:"qcc"`
	Full       CharsScores `json:"full"`
}

// CharsScores is one model on the part that it was not trained on.
type CharsScores struct {
	Trained
	ValidLoss  float64 `json:"valid_loss"`
	Perplexity float64 `json:"perplexity"`
}

// characters numbers the characters of a text in their order.
func characters(text string) (ids []int32, vocab int, err error) {
	if !utf8.ValidString(text) {
		return nil, 0, fmt.Errorf("qccbench: the text is no UTF-8")
	}
	runes := []rune(text)
	all := slices.Clone(runes)
	slices.Sort(all)
	all = slices.Compact(all)
	for _, r := range runes {
		i, _ := slices.BinarySearch(all, r)
		ids = append(ids, int32(i))
	}
	return ids, len(all), nil
}

// pieces are seeded texts of ids, each target the token that follows.
func pieces(next *rand.Rand, ids []int32, n, length int) []lm.Text {
	l := make([]lm.Text, n)
	for i := range l {
		at := next.IntN(len(ids) - length)
		l[i] = lm.Text{IDs: ids[at : at+length], Targets: ids[at+1 : at+length+1]}
	}
	return l
}

// unigram is the perplexity of ids under the counts of others, one added to each.
func unigram(train, judged []int32, vocab int) float64 {
	counts := make([]float64, vocab)
	for _, id := range train {
		counts[id]++
	}
	nats := 0.0
	for _, id := range judged {
		nats -= math.Log((counts[id] + 1) / float64(len(train)+vocab))
	}
	return math.Exp(nats / float64(len(judged)))
}

// RunChars trains the small model with window and archive, and with exact attention, on
// the same pieces of a text from the same seed.
func RunChars(ctx context.Context, dev backend.Device, c CharsConfig) (CharsResult, error) {
	r := CharsResult{Head: head("tiny_shakespeare", c.RunID, dev), Steps: c.Steps, Batch: c.Batch, Length: c.Length, Window: c.Window}
	r.Synthetic, r.MatchedFullKV = true, true
	ids, vocab, err := characters(c.Text)
	if err != nil {
		return r, err
	}
	cut := len(ids) - len(ids)/10
	train, valid := ids[:cut], ids[cut:]
	if c.Length < 2 || c.Length > c.MaxPosition || len(valid) <= c.Length || c.EvalBatches < 1 || c.EvalBatches > 1<<16 {
		return r, fmt.Errorf("qccbench: %d batches of pieces of %d characters from a tenth of a text of %d, for a model of %d positions: want at least one batch, 2 characters or more that the model and the tenth have room for", c.EvalBatches, c.Length, len(ids), c.MaxPosition)
	}
	c.Vocab = vocab
	r.Characters, r.Vocab, r.Judged, r.Unigram = len(ids), vocab, c.EvalBatches*c.Batch*c.Length, unigram(train, valid, vocab)
	trained, scores, err := c.both(ctx, dev, c.EvalBatches*c.Batch, func(next *rand.Rand, n int, judge bool) []lm.Text {
		if judge {
			return pieces(next, valid, n, c.Length)
		}
		return pieces(next, train, n, c.Length)
	})
	for i, to := range []*CharsScores{&r.QCC, &r.Full} {
		loss := float64(scores[i].Loss)
		*to = CharsScores{trained[i], loss, math.Exp(loss)}
	}
	return r, err
}

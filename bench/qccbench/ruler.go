package qccbench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"samebit/backend"
	"samebit/nn"
)

// RulerRecord is a row of RULER's files.
type RulerRecord struct {
	Task    string   `json:"task"` // RULER's own files name it by their path only
	Index   int      `json:"index"`
	Input   string   `json:"input"`
	Prefix  string   `json:"answer_prefix"` // of newer files, the beginning of the answer
	Outputs []string `json:"outputs"`
	Length  int      `json:"length"` // tokens, as the file says
}

// ReadRuler reads rows, one JSON object each, of a task. It refuses a row without
// input, answers or length.
func ReadRuler(r io.Reader, task string) ([]RulerRecord, error) {
	return readRows(r, func(x *RulerRecord) error {
		if x.Task == "" {
			x.Task = task
		}
		if x.Task == "" || x.Input == "" || len(x.Outputs) == 0 || slices.Contains(x.Outputs, "") || x.Length <= 0 {
			return fmt.Errorf("no row of RULER: want a task, \"input\", \"outputs\" and \"length\"")
		}
		return nil
	})
}

// readRows reads rows of a benchmark, one JSON object each, and has check complete or
// refuse every one.
func readRows[R any](r io.Reader, check func(x *R) error) ([]R, error) {
	in := json.NewDecoder(bufio.NewReader(r))
	var l []R
	for {
		var x R
		err := in.Decode(&x)
		if err == io.EOF {
			return l, nil
		}
		if err == nil {
			err = check(&x)
		}
		if err != nil {
			return nil, fmt.Errorf("row %d: %w", len(l)+1, err)
		}
		l = append(l, x)
	}
}

// chosen are the rows behind some that are left out, at most so many if most is not 0.
func chosen[R any](rows []R, skip, most int) ([]R, error) {
	rows = rows[min(skip, len(rows)):]
	if most > 0 {
		rows = rows[:min(most, len(rows))]
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("qccbench: there are no rows, or all are left out")
	}
	return rows, nil
}

// RulerConfig is a run of such rows. A field of 0 is none.
type RulerConfig struct {
	RunID     string
	Memory    string // says how the own model's memory is bounded
	Generated bool   // the project made the model
	Skip, Max int    // rows; Max 0: all
	Tokens    int    // of an answer, at most
	MinNative int    // context that the model must have
	Chunk     int
	Progress  func(done, total int)
}

// RulerAnswer is what one model said.
type RulerAnswer struct {
	Prediction string  `json:"prediction"`
	Recall     float64 `json:"answer_recall"`        // the share of the answers that it has, in any case
	Limit      bool    `json:"reached_output_limit"` // then the score is 0
	Error      string  `json:"error,omitempty"`      // then it is 0, too
	Score      float64 `json:"score"`
}

// RulerRow is a row with both answers.
type RulerRow struct {
	Task   string      `json:"task"`
	Index  int         `json:"index"`
	Length int         `json:"length"`
	Bucket string      `json:"length_bucket"`
	Prompt int         `json:"prompt_tokens"` // of this model
	QCC    RulerAnswer `json:"qcc"`
	Full   RulerAnswer `json:"full_kv"`
}

// RulerScore is the mean of rows. A ratio is null where the full cache scores 0.
type RulerScore struct {
	Records int      `json:"records"`
	QCC     float64  `json:"qcc_score"`
	Full    float64  `json:"full_kv_score"`
	Ratio   *float64 `json:"ratio"`
}

func (s *RulerScore) add(r RulerRow) {
	s.Records++
	s.QCC, s.Full = s.QCC+r.QCC.Score, s.Full+r.Full.Score
}

func (s *RulerScore) finish() {
	n := float64(s.Records)
	s.QCC, s.Full = s.QCC/n, s.Full/n
	s.Ratio = ratio(s.QCC, s.Full)
}

// ratio is null where the full cache scores 0.
func ratio(own, full float64) *float64 {
	if full == 0 {
		return nil
	}
	x := own / full
	return &x
}

// RulerResult has all rows, and means by task/bucket. It is never the full suite:
// nothing here knows which rows belong to one.
type RulerResult struct {
	Head
	Benchmark string `json:"benchmark"`
	Subject
	Tokens    int                    `json:"max_new_tokens"`
	FullSuite bool                   `json:"full_suite"`
	Errors    int                    `json:"errors"` // answers of either model
	Limits    int                    `json:"reached_output_limit"`
	QCC       float64                `json:"qcc_score"`
	Full      float64                `json:"full_kv_score"`
	Retention *float64               `json:"quality_retention"`
	Ratios    map[string]*float64    `json:"task_ratios"`
	Scores    map[string]*RulerScore `json:"scores"`
	Records   []RulerRow             `json:"records"`
}

// rulerBucket is a range of lengths, in thousands of tokens.
func rulerBucket(n int) string {
	switch {
	case n < 8_000:
		return "0-8K"
	case n < 32_000:
		return "8-32K"
	case n < 128_000:
		return "32-128K"
	}
	return "128K+"
}

// answered is the share of answers that a text contains.
func answered(text string, answers []string) float64 {
	text = strings.ToLower(text)
	n := 0
	for _, a := range answers {
		if strings.Contains(text, strings.ToLower(a)) {
			n++
		}
	}
	return float64(n) / float64(len(answers))
}

// RunRuler asks a model with its full cache, and the same one of bounded memory, for
// the answers of rows, with the likeliest tokens.
func RunRuler(ctx context.Context, dev backend.Device, full, own *nn.Decoder, t Text, records []RulerRecord, c RulerConfig) (RulerResult, error) {
	r := RulerResult{Head: head("ruler", c.RunID, dev), Benchmark: "ruler", Subject: subject(full, c.Memory), Tokens: c.Tokens,
		Ratios: map[string]*float64{}, Scores: map[string]*RulerScore{}}
	r.Synthetic, r.MatchedFullKV = c.Generated, true
	if c.Tokens < 1 || c.Chunk < 1 || c.Skip < 0 || c.Max < 0 || c.MinNative < 0 {
		return r, fmt.Errorf("qccbench: answers of %d tokens, passes of %d rows, %d rows left out, at most %d, a context of %d: want positive numbers", c.Tokens, c.Chunk, c.Skip, c.Max, c.MinNative)
	}
	if err := native(full, c.MinNative); err != nil {
		return r, err
	}
	records, err := chosen(records, c.Skip, c.Max)
	if err != nil {
		return r, err
	}
	w, err := newWriter(dev, t, c.Tokens, c.Chunk)
	if err != nil {
		return r, err
	}
	var all RulerScore
	for i, x := range records {
		ids := t.Encode(x.Input + x.Prefix)
		row := RulerRow{Task: x.Task, Index: x.Index, Length: x.Length, Bucket: rulerBucket(x.Length), Prompt: len(ids)}
		err := w.both(ctx, own, full, ids, func(arm int, said string, limit bool, failed error) {
			a := []*RulerAnswer{&row.QCC, &row.Full}[arm]
			if failed != nil {
				a.Error = failed.Error()
				r.Errors++
				return
			}
			a.Prediction, a.Limit, a.Recall = said, limit, answered(said, x.Outputs)
			if limit {
				r.Limits++
			} else {
				a.Score = a.Recall
			}
		})
		if err != nil {
			w.close()
			return r, err
		}
		key := row.Task + "/" + row.Bucket
		if r.Scores[key] == nil {
			r.Scores[key] = new(RulerScore)
		}
		r.Scores[key].add(row)
		all.add(row)
		r.Records = append(r.Records, row)
		if c.Progress != nil {
			c.Progress(i+1, len(records))
		}
	}
	all.finish()
	r.QCC, r.Full, r.Retention = all.QCC, all.Full, all.Ratio
	for k, s := range r.Scores {
		s.finish()
		r.Ratios[k] = s.Ratio
	}
	return r, w.close()
}

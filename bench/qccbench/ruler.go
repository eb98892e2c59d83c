package qccbench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
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
	in := json.NewDecoder(bufio.NewReader(r))
	var l []RulerRecord
	for {
		var x RulerRecord
		if err := in.Decode(&x); err == io.EOF {
			return l, nil
		} else if err != nil {
			return nil, fmt.Errorf("row %d: %w", len(l)+1, err)
		}
		if x.Task == "" {
			x.Task = task
		}
		good := x.Task != "" && x.Input != "" && len(x.Outputs) > 0 && x.Length > 0
		for _, o := range x.Outputs {
			good = good && o != ""
		}
		if !good {
			return nil, fmt.Errorf("row %d: no row of RULER: want a task, \"input\", \"outputs\" and \"length\"", len(l)+1)
		}
		l = append(l, x)
	}
}

// RulerConfig is a run of such rows. A field of 0 is none.
type RulerConfig struct {
	RunID     string
	Memory    string // says how the own model's memory is bounded
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
	Benchmark string                 `json:"benchmark"`
	ModelID   string                 `json:"model_id"`
	Memory    string                 `json:"memory"`
	Native    int                    `json:"native_context_tokens"`
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
	r := RulerResult{Head: head("ruler", c.RunID, dev), Benchmark: "ruler", ModelID: modelID(full), Memory: c.Memory, Native: full.Context, Tokens: c.Tokens,
		Ratios: map[string]*float64{}, Scores: map[string]*RulerScore{}}
	r.MatchedFullKV = true
	if c.Tokens < 1 || c.Chunk < 1 || c.Skip < 0 || c.Max < 0 || c.MinNative < 0 {
		return r, fmt.Errorf("qccbench: answers of %d tokens, passes of %d rows, %d rows left out, at most %d, a context of %d: want positive numbers", c.Tokens, c.Chunk, c.Skip, c.Max, c.MinNative)
	}
	if err := native(full, c.MinNative); err != nil {
		return r, err
	}
	records = records[min(c.Skip, len(records)):]
	if c.Max > 0 {
		records = records[:min(c.Max, len(records))]
	}
	if len(records) == 0 {
		return r, fmt.Errorf("qccbench: there are no rows, or all are left out")
	}
	w, err := newWriter(dev, t, c.Tokens, c.Chunk)
	if err != nil {
		return r, err
	}
	var all RulerScore
	for i, x := range records {
		ids := t.Encode(x.Input + x.Prefix)
		row := RulerRow{Task: x.Task, Index: x.Index, Length: x.Length, Bucket: rulerBucket(x.Length), Prompt: len(ids)}
		for _, arm := range []struct {
			d *nn.Decoder
			a *RulerAnswer
		}{{own, &row.QCC}, {full, &row.Full}} {
			var failed error
			arm.a.Prediction, arm.a.Limit, failed = w.answer(ctx, arm.d, ids)
			if err := ctx.Err(); err != nil { // no failure of the model
				w.close()
				return r, err
			}
			switch {
			case failed != nil:
				arm.a.Error = failed.Error()
				r.Errors++
				continue
			case arm.a.Limit:
				r.Limits++
			}
			if arm.a.Recall = answered(arm.a.Prediction, x.Outputs); !arm.a.Limit {
				arm.a.Score = arm.a.Recall
			}
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

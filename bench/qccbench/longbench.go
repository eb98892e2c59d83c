package qccbench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"samebit/backend"
	"samebit/nn"
)

// LongBenchRecord is a row of LongBench's files.
type LongBenchRecord struct {
	ID      string   `json:"_id"`
	Dataset string   `json:"dataset"`
	Input   string   `json:"input"` // the question; empty in some data sets
	Context string   `json:"context"`
	Answers []string `json:"answers"`
	Classes []string `json:"all_classes"` // of classifications, else null
	Length  int      `json:"length"`      // words or characters, as the file says
}

// longBenchSuite are the data sets of LongBench and the rows of each.
var longBenchSuite = map[string]int{
	"narrativeqa": 200, "qasper": 200, "multifieldqa_en": 150, "multifieldqa_zh": 200,
	"hotpotqa": 200, "2wikimqa": 200, "musique": 200, "dureader": 200,
	"gov_report": 200, "qmsum": 200, "multi_news": 200, "vcsum": 200,
	"trec": 200, "triviaqa": 200, "samsum": 200, "lsht": 200,
	"passage_count": 200, "passage_retrieval_en": 200, "passage_retrieval_zh": 200,
	"lcc": 500, "repobench-p": 500,
}

// wholeLongBench reports whether rows of data sets are those of the whole suite.
func wholeLongBench(rows map[string]int) bool { return maps.Equal(rows, longBenchSuite) }

// A data set names the file of its predictions, and the evaluator takes what is before
// the first dot.
var datasetName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

// ReadLongBench reads rows, one JSON object each; a row that names no data set is of the
// given one. It refuses a row without context, answers or length.
func ReadLongBench(r io.Reader, dataset string) ([]LongBenchRecord, error) {
	return readRows(r, func(x *LongBenchRecord) error {
		if x.Dataset == "" {
			x.Dataset = dataset
		}
		if !datasetName.MatchString(x.Dataset) {
			return fmt.Errorf("data set %q: want a name of letters, digits, - and _", x.Dataset)
		}
		if x.Context == "" || len(x.Answers) == 0 || x.Length <= 0 {
			return fmt.Errorf("no row of LongBench: want \"context\", \"input\", \"answers\" and \"length\"")
		}
		return nil
	})
}

// CheckPrompt refuses a format in which {context} does not stand, or which has something
// else than {context} and {input} in braces; {{ and }} are braces.
func CheckPrompt(format string) error {
	filled := func(context string) string {
		return strings.NewReplacer("{{", "", "}}", "", "{context}", context, "{input}", "").Replace(format)
	}
	if filled("") == filled("text") || strings.ContainsAny(filled(""), "{}") {
		return fmt.Errorf("prompt format %q: want {context}, and {input} if there is a question, and no other braces but {{ and }}", format)
	}
	return nil
}

// prompt puts a row into a format.
func (x LongBenchRecord) prompt(format string) string {
	return strings.NewReplacer("{{", "{", "}}", "}", "{context}", x.Context, "{input}", x.Input).Replace(format)
}

// middleOut are at most n tokens of a text: if it has more, the first and the last n/2.
// LongBench makes text of both ends and tokens of that again; here the tokens stay as
// they are, so that there are never more than n.
func middleOut(ids []int32, n int) []int32 {
	if n == 0 || len(ids) <= n {
		return ids
	}
	return slices.Concat(ids[:n/2], ids[len(ids)-n/2:])
}

// LongBenchConfig is a run of such rows. A field of 0 is none.
type LongBenchConfig struct {
	RunID     string
	Memory    string            // says how the own model's memory is bounded
	Generated bool              // the project made the model
	Prompt    string            // format of data sets that have none in Prompts
	Prompts   map[string]string // by data set
	Tokens    int               // of an answer, at most, where Lengths says nothing
	Lengths   map[string]int    // the same by data set
	Prefix    int               // tokens of a prompt, at most; 0: what the context leaves beside the answer
	Max       int               // rows of each data set; 0: all
	MinNative int               // context that the model must have
	Chunk     int
	// Emit is called with every prediction of either arm, qcc or full_kv; may be nil.
	Emit     func(arm, dataset string, p Prediction) error
	Progress func(done, total int)
}

// Prediction is a line of the files that LongBench's evaluator reads. An answer that
// failed is empty, which scores nothing.
type Prediction struct {
	Pred    string   `json:"pred"`
	Answers []string `json:"answers"`
	Classes []string `json:"all_classes"`
	Length  int      `json:"length"`
}

// LongBenchAnswer is what one model said. Neither score is LongBench's.
type LongBenchAnswer struct {
	Prediction string  `json:"prediction"`
	F1         float64 `json:"token_f1"`
	Exact      float64 `json:"exact_match"`
	Limit      bool    `json:"reached_output_limit"`
	Error      string  `json:"error,omitempty"` // then both scores are 0
}

// LongBenchRow is a row with both answers.
type LongBenchRow struct {
	ID      string          `json:"_id"`
	Dataset string          `json:"dataset"`
	Prompt  int             `json:"prompt_tokens"` // of this model, before any were left out
	Cut     int             `json:"tokens_left_out"`
	QCC     LongBenchAnswer `json:"qcc"`
	Full    LongBenchAnswer `json:"full_kv"`
}

// LongBenchScores are means of both models.
type LongBenchScores struct {
	QCC  float64 `json:"qcc"`
	Full float64 `json:"full_kv"`
}

// LongBenchTask is a data set. Its official score is there once the evaluator's own
// results are given; see Score.
type LongBenchTask struct {
	Records  int              `json:"records"`
	F1       LongBenchScores  `json:"token_f1"`
	Exact    LongBenchScores  `json:"exact_match"`
	Official *LongBenchScores `json:"evaluator_score,omitempty"`
}

// LongBenchResult has all rows and means by data set. Scores and ratios are those of
// LongBench's evaluator, and are left out until it has run.
type LongBenchResult struct {
	Head
	Benchmark string `json:"benchmark"`
	Subject
	Prefix    int                       `json:"max_length,omitempty"`
	FullSuite bool                      `json:"full_suite"` // every row of the 21 data sets was asked
	Errors    int                       `json:"errors"`     // answers of either model
	Limits    int                       `json:"reached_output_limit"`
	Cut       int                       `json:"truncated"` // prompts
	F1        LongBenchScores           `json:"token_f1"`  // mean of the data sets' means
	Exact     LongBenchScores           `json:"exact_match"`
	QCC       *float64                  `json:"qcc_score,omitempty"` // mean of the data sets' scores
	Full      *float64                  `json:"full_kv_score,omitempty"`
	Ratios    map[string]*float64       `json:"task_ratios,omitempty"` // null where the full cache scores 0
	Tasks     map[string]*LongBenchTask `json:"tasks"`
	Records   []LongBenchRow            `json:"records"`
}

// limit is how many tokens an answer may have.
func (c LongBenchConfig) limit(dataset string) int {
	if n, ok := c.Lengths[dataset]; ok {
		return n
	}
	return c.Tokens
}

func (c LongBenchConfig) format(dataset string) string {
	if f, ok := c.Prompts[dataset]; ok {
		return f
	}
	return c.Prompt
}

// check refuses what cannot be run with rows.
func (c LongBenchConfig) check(rows []LongBenchRecord) error {
	if c.Chunk < 1 || c.Prefix < 0 || c.Prefix == 1 || c.Max < 0 || c.MinNative < 0 {
		return fmt.Errorf("qccbench: passes of %d rows, prompts of %d tokens, at most %d rows, a context of %d: want positive numbers, and two ends of a prompt", c.Chunk, c.Prefix, c.Max, c.MinNative)
	}
	for _, x := range rows {
		if n := c.limit(x.Dataset); n < 1 {
			return fmt.Errorf("qccbench: answers of %d tokens in %s: want at least one", n, x.Dataset)
		}
		if c.format(x.Dataset) == "" {
			return fmt.Errorf("qccbench: there is no prompt format for %s: give one for it, or one for all", x.Dataset)
		}
		if err := CheckPrompt(c.format(x.Dataset)); err != nil {
			return fmt.Errorf("qccbench: %s: %w", x.Dataset, err)
		}
	}
	return nil
}

// RunLongBench asks a model with its full cache, and the same one of bounded memory, for
// the answers of rows, with the likeliest tokens.
func RunLongBench(ctx context.Context, dev backend.Device, full, own *nn.Decoder, t Text, records []LongBenchRecord, c LongBenchConfig) (LongBenchResult, error) {
	r := LongBenchResult{Head: head("longbench", c.RunID, dev), Benchmark: "longbench", Subject: subject(full, c.Memory), Prefix: c.Prefix, Tasks: map[string]*LongBenchTask{}}
	r.Synthetic, r.MatchedFullKV = c.Generated, true
	records = firstOfEach(records, c.Max)
	records, err := chosen(records, 0, 0)
	if err == nil {
		err = c.check(records)
	}
	if err == nil {
		err = native(full, c.MinNative)
	}
	if err != nil {
		return r, err
	}
	w, err := newWriter(dev, t, 0, c.Chunk)
	if err != nil {
		return r, err
	}
	for i, x := range records {
		w.tokens = c.limit(x.Dataset)
		if err := r.ask(ctx, w, own, full, x, c); err != nil {
			w.close()
			return r, err
		}
		if c.Progress != nil {
			c.Progress(i+1, len(records))
		}
	}
	rows := map[string]int{}
	for _, k := range slices.Sorted(maps.Keys(r.Tasks)) { // in one order, for the same sums
		s := r.Tasks[k]
		rows[k] = s.Records
		s.F1.over(s.Records)
		s.Exact.over(s.Records)
		r.F1.add(s.F1.QCC, s.F1.Full)
		r.Exact.add(s.Exact.QCC, s.Exact.Full)
	}
	r.F1.over(len(rows))
	r.Exact.over(len(rows))
	r.FullSuite = wholeLongBench(rows)
	return r, w.close()
}

func (s *LongBenchScores) add(own, full float64) { s.QCC, s.Full = s.QCC+own, s.Full+full }
func (s *LongBenchScores) over(n int)            { s.QCC, s.Full = s.QCC/float64(n), s.Full/float64(n) }

// firstOfEach are the first n rows of every data set, all for 0.
func firstOfEach(records []LongBenchRecord, n int) []LongBenchRecord {
	if n == 0 {
		return records
	}
	var l []LongBenchRecord
	seen := map[string]int{}
	for _, x := range records {
		if seen[x.Dataset]++; seen[x.Dataset] <= n {
			l = append(l, x)
		}
	}
	return l
}

// ask has both models answer a row.
func (r *LongBenchResult) ask(ctx context.Context, w *writer, own, full *nn.Decoder, x LongBenchRecord, c LongBenchConfig) error {
	ids := w.text.Encode(x.prompt(c.format(x.Dataset)))
	most := c.Prefix
	if most == 0 && full.Context > 0 {
		most = max(full.Context-w.tokens, 2)
	}
	row := LongBenchRow{ID: x.ID, Dataset: x.Dataset, Prompt: len(ids)}
	ids = middleOut(ids, most)
	if row.Cut = row.Prompt - len(ids); row.Cut > 0 {
		r.Cut++
	}
	task := r.Tasks[x.Dataset]
	if task == nil {
		task = new(LongBenchTask)
		r.Tasks[x.Dataset] = task
	}
	err := w.both(ctx, own, full, ids, func(arm int, said string, limit bool, failed error) {
		a := []*LongBenchAnswer{&row.QCC, &row.Full}[arm]
		if failed != nil {
			a.Error = failed.Error()
			r.Errors++
			return
		}
		a.Prediction, a.Limit = said, limit
		if limit {
			r.Limits++
		}
		for _, want := range x.Answers {
			f1, exact := tokenF1(said, want)
			a.F1, a.Exact = max(a.F1, f1), max(a.Exact, exact)
		}
	})
	if err != nil {
		return err
	}
	task.Records++
	task.F1.add(row.QCC.F1, row.Full.F1)
	task.Exact.add(row.QCC.Exact, row.Full.Exact)
	r.Records = append(r.Records, row)
	if c.Emit == nil {
		return nil
	}
	for _, p := range []struct{ arm, said string }{{"qcc", row.QCC.Prediction}, {"full_kv", row.Full.Prediction}} {
		if err := c.Emit(p.arm, x.Dataset, Prediction{p.said, x.Answers, x.Classes, x.Length}); err != nil {
			return err
		}
	}
	return nil
}

// words of a text in small letters, without punctuation and English articles, as SQuAD's
// scores have them. A text without spaces, as Chinese, is one word.
func words(text string) []string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPunct(r) || unicode.IsSymbol(r) {
			return -1
		}
		return unicode.ToLower(r)
	}, text)
	return slices.DeleteFunc(strings.Fields(text), func(w string) bool { return w == "a" || w == "an" || w == "the" })
}

// tokenF1 is the harmonic mean of the share of the words said that are wanted and of
// those wanted that are said; exact is 1 if they are the same words in order.
func tokenF1(said, want string) (f1, exact float64) {
	a, b := words(said), words(want)
	if slices.Equal(a, b) {
		return 1, 1
	}
	have := map[string]int{}
	for _, w := range a {
		have[w]++
	}
	common := 0.0
	for _, w := range b {
		if have[w] > 0 {
			have[w]--
			common++
		}
	}
	if common == 0 {
		return 0, 0
	}
	precision, recall := common/float64(len(a)), common/float64(len(b))
	return 2 * precision * recall / (precision + recall), 0
}

// ReadScores reads a result of LongBench's evaluator: a number from 0 to 100 for each
// data set. It refuses that of LongBench-E, which has several.
func ReadScores(r io.Reader) (map[string]float64, error) {
	var raw map[string]json.RawMessage
	if err := json.NewDecoder(r).Decode(&raw); err != nil {
		return nil, fmt.Errorf("no result of LongBench's evaluator: want {\"narrativeqa\": 23.4, ...}: %w", err)
	}
	scores := map[string]float64{}
	for _, k := range slices.Sorted(maps.Keys(raw)) {
		var x *float64
		if err := json.Unmarshal(raw[k], &x); err != nil || x == nil || *x < 0 || *x > 100 {
			return nil, fmt.Errorf("the result for %s is %.40s: want a number from 0 to 100, as eval.py writes without --e", k, raw[k])
		}
		scores[k] = *x
	}
	return scores, nil
}

// Score takes in what LongBench's evaluator found of the predictions of both arms. Both
// must be of the data sets that were run, no more and no fewer.
func (r *LongBenchResult) Score(full, own map[string]float64) error {
	if r.Schema != schemaBefore+"longbench"+schemaAfter || len(r.Tasks) == 0 {
		return fmt.Errorf("qccbench: schema %q: want a report of qcc-longbench", r.Schema)
	}
	for _, of := range []struct {
		what   string
		scores map[string]float64
	}{{"the full cache", full}, {"the bounded memory", own}} {
		for k := range r.Tasks {
			if _, ok := of.scores[k]; !ok {
				return fmt.Errorf("qccbench: the evaluator's result of %s has no %s, which was run: evaluate all predictions", of.what, k)
			}
		}
		for k := range of.scores {
			if r.Tasks[k] == nil {
				return fmt.Errorf("qccbench: the evaluator's result of %s has %s, which was not run: give the result of these predictions", of.what, k)
			}
		}
	}
	r.QCC, r.Full, r.Ratios = new(float64), new(float64), map[string]*float64{}
	for _, k := range slices.Sorted(maps.Keys(r.Tasks)) {
		r.Tasks[k].Official = &LongBenchScores{QCC: own[k], Full: full[k]}
		r.Ratios[k] = ratio(own[k], full[k])
		*r.QCC += own[k] / float64(len(r.Tasks))
		*r.Full += full[k] / float64(len(r.Tasks))
	}
	return nil
}

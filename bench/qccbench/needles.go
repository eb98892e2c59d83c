package qccbench

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"

	"samebit/backend"
	"samebit/internal/jsonlines"
	"samebit/nn"
)

// What a retrieval must have at least to be evidence.
const (
	evidenceTrials = 1000
	evidenceTokens = 1_000_000
)

// Manifest is a retrieval that is laid down before it is run: what is hidden where in
// which text.
type Manifest struct {
	Schema  string        `json:"schema"`
	Context int           `json:"context_tokens"` // before a question, exactly
	TextSHA string        `json:"text_sha256"`    // of the text that things are hidden in
	Seed    uint64        `json:"seed"`
	Trials  []NeedleTrial `json:"trials"`
}

const manifestSchema = "samebit.qcc.retrieval_manifest/1"

// NeedleTrial is one text. Its needles are all asked for, its distractors never.
type NeedleTrial struct {
	From        float64  `json:"text_from"` // where in the text it begins, as a share
	Needles     []Needle `json:"needles"`
	Distractors []Needle `json:"distractors"`
}

// Needle is a sentence that gives a key a number of eight digits.
type Needle struct {
	Key   string  `json:"key"`
	Value string  `json:"value"`
	Depth float64 `json:"depth"` // where it begins, as a share of the context
}

func (n Needle) sentence() string {
	return " The access code of the " + n.Key + " is " + n.Value + "."
}

func (n Needle) question() string {
	return "\nQuestion: What is the access code of the " + n.Key + "?\nAnswer: The access code of the " + n.Key + " is"
}

// ManifestConfig is what a manifest lays down.
type ManifestConfig struct {
	Trials, Context      int
	Needles, Distractors int
	Seed                 uint64
}

var needleWords = [2][]string{
	{"amber", "broken", "copper", "distant", "eastern", "frozen", "golden", "hidden", "ivory", "jagged", "lower", "marble", "narrow", "outer", "painted", "quiet"},
	{"archive", "bridge", "cellar", "dock", "engine", "furnace", "garden", "harbour", "island", "kitchen", "library", "mill", "observatory", "pavilion", "quarry", "station"},
}

// NewManifest draws trials: keys of two words, numbers that differ, depths uniform from
// 0.01 to 0.97. A distractor shares a word of its key with a needle.
func NewManifest(text []byte, c ManifestConfig) (Manifest, error) {
	m := Manifest{Schema: manifestSchema, Context: c.Context, TextSHA: digest(text), Seed: c.Seed}
	if len(text) == 0 || c.Trials < 1 || c.Trials > 1<<20 || c.Context < 1 || c.Context > 1<<26 || c.Needles < 1 || c.Needles > 16 || c.Distractors < 0 || c.Distractors > 4*c.Needles {
		return m, fmt.Errorf("qccbench: %d trials of %d needles and %d distractors in %d tokens of a text of %d bytes: want a text, 1 to 2^20 trials, 1 to 16 needles, up to four distractors for each, up to 2^26 tokens", c.Trials, c.Needles, c.Distractors, c.Context, len(text))
	}
	next := rand.New(rand.NewPCG(c.Seed, 3))
	for range c.Trials {
		t := NeedleTrial{From: next.Float64(), Distractors: []Needle{}}
		taken, values := map[[2]int]bool{}, map[string]bool{}
		draw := func(key func() [2]int) (n Needle, k [2]int) {
			for k = key(); taken[k]; k = key() {
			}
			taken[k] = true
			n = Needle{Key: needleWords[0][k[0]] + " " + needleWords[1][k[1]], Depth: 0.01 + 0.96*next.Float64()}
			for n.Value == "" || values[n.Value] {
				n.Value = fmt.Sprint(10_000_000 + next.IntN(90_000_000))
			}
			values[n.Value] = true
			return n, k
		}
		var keys [][2]int
		for range c.Needles {
			n, k := draw(func() [2]int { return [2]int{next.IntN(16), next.IntN(16)} })
			t.Needles, keys = append(t.Needles, n), append(keys, k)
		}
		for i := range c.Distractors {
			n, _ := draw(func() [2]int {
				k := keys[i%len(keys)]
				k[next.IntN(2)] = next.IntN(16)
				return k
			})
			t.Distractors = append(t.Distractors, n)
		}
		m.Trials = append(m.Trials, t)
	}
	return m, nil
}

func digest(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

var eightDigits = regexp.MustCompile(`[0-9]+`)

// firstNumber is the first number of exactly eight digits, "" if there is none.
func firstNumber(text string) string {
	for _, n := range eightDigits.FindAllString(text, -1) {
		if len(n) == 8 {
			return n
		}
	}
	return ""
}

// hide is a trial's context of exactly n tokens: the text from some place on, again from
// its beginning when it ends, with every sentence at its depth, right behind the last one,
// or as early as lets the later ones fit.
func (t NeedleTrial) hide(n int, text []int32, encode func(string) []int32) ([]int32, error) {
	all := slices.Concat(t.Needles, t.Distractors)
	slices.SortStableFunc(all, func(a, b Needle) int { return cmp.Compare(a.Depth, b.Depth) })
	at := min(int(t.From*float64(len(text))), len(text)-1)
	out := make([]int32, 0, n)
	fill := func(to int) {
		for len(out) < to {
			out = append(out, text[at])
			at = (at + 1) % len(text)
		}
	}
	var sentences [][]int32
	rest := 0 // tokens of the sentences that are to come
	for _, x := range all {
		sentences = append(sentences, encode(x.sentence()))
		rest += len(sentences[len(sentences)-1])
	}
	if rest > n {
		return nil, fmt.Errorf("%d sentences of %d tokens have no room in %d: take longer contexts or fewer needles", len(all), rest, n)
	}
	for i, x := range all {
		fill(min(int(x.Depth*float64(n)), n-rest))
		out, rest = append(out, sentences[i]...), rest-len(sentences[i])
	}
	fill(n)
	return out, nil
}

// NeedlesConfig is a run of a manifest.
type NeedlesConfig struct {
	RunID     string
	Memory    string // says how the own model's memory is bounded
	Generated bool   // the project made the model
	Tokens    int    // of an answer, at most
	MinNative int    // context that the model must have
	Chunk     int
	Have      []NeedleResult           // of an interrupted run
	Emit      func(NeedleResult) error // called with every result that is new; may be nil
	Progress  func(done, total int)
}

// NeedleResult is a trial that was run. What a run is called and what it ran comes with
// each.
type NeedleResult struct {
	RunID    string         `json:"run_id"`
	Manifest string         `json:"manifest_sha256"`
	ModelID  string         `json:"model_id"`
	Memory   string         `json:"memory"`
	Tokens   int            `json:"max_new_tokens"`
	Trial    int            `json:"trial"`
	Answers  []NeedleAnswer `json:"answers"` // one for each needle
	Error    string         `json:"error,omitempty"`
}

// NeedleAnswer are the first numbers of eight digits that either model gave, "" for none.
type NeedleAnswer struct {
	Depth float64 `json:"depth"`
	Value string  `json:"value"`
	QCC   string  `json:"qcc"`
	Full  string  `json:"full_kv"`
}

// ReadNeedles reads results that a run kept, one JSON object a line. A last line that was
// cut off is left out.
func ReadNeedles(r io.Reader) ([]NeedleResult, error) {
	l, err := jsonlines.Read[NeedleResult](r)
	if err != nil {
		err = fmt.Errorf("qccbench: results: %w", err)
	}
	return l, err
}

// NeedlesResult has rates; a trial succeeds if all its needles are found.
type NeedlesResult struct {
	Head
	NotEvidence []string `json:"not_evidence"` // why it is none; empty if nothing here says so
	Manifest    string   `json:"manifest_sha256"`
	Subject
	Trials      int                     `json:"trials"`
	Needles     int                     `json:"needles_total"`
	Context     int                     `json:"context_tokens"`
	Errors      int                     `json:"errors"` // trials that could not be run; they count as missed by both
	FirstError  string                  `json:"first_error,omitempty"`
	QCC         float64                 `json:"qcc_success_rate"`
	Full        float64                 `json:"full_kv_success_rate"`
	NeedleQCC   float64                 `json:"needle_success_rate"`
	NeedleFull  float64                 `json:"full_kv_needle_success_rate"`
	Missed      float64                 `json:"catastrophic_retrieval_miss_rate_trials"` // the full cache has all needles and the bounded memory has not
	MissedOnes  float64                 `json:"catastrophic_retrieval_needle_miss_rate"`
	Depths      map[string]*DepthBucket `json:"depth_buckets"`
	AllRequired bool                    `json:"all_needles_required"`
	RandomDepth bool                    `json:"random_depth"` // the trials are those that the manifest's seed draws
	Multi       bool                    `json:"multi_needle"`
	Distractors bool                    `json:"semantic_distractor"` // each has some, drawn likewise
	Oracle      bool                    `json:"oracle_admission"`
}

// DepthBucket is a quarter of depths.
type DepthBucket struct {
	Needles int      `json:"needles"`
	QCC     float64  `json:"qcc_success_rate"`
	Full    float64  `json:"full_kv_success_rate"`
	Ratio   *float64 `json:"qcc_full_kv_ratio"` // null where the full cache finds none
}

var quarters = []string{"0-25%", "25-50%", "50-75%", "75-100%"}

// RunNeedles runs the trials of a manifest, read from data, with a model's full cache
// and with a bounded memory. text is what the manifest was made for.
func RunNeedles(ctx context.Context, dev backend.Device, full, own *nn.Decoder, t Text, data, text []byte, c NeedlesConfig) (NeedlesResult, error) {
	r := NeedlesResult{Head: head("retrieval_1m", c.RunID, dev), NotEvidence: []string{}, Manifest: digest(data), Subject: subject(full, c.Memory),
		Depths: map[string]*DepthBucket{}, AllRequired: true}
	r.Synthetic, r.MatchedFullKV = c.Generated, true
	var m Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return r, fmt.Errorf("qccbench: manifest: %w", err)
	}
	if err := m.check(text); err != nil {
		return r, err
	}
	if c.Tokens < 1 || c.Chunk < 1 || c.MinNative < 0 {
		return r, fmt.Errorf("qccbench: answers of %d tokens, passes of %d rows, a context of %d: want positive numbers", c.Tokens, c.Chunk, c.MinNative)
	}
	if err := native(full, c.MinNative); err != nil {
		return r, err
	}
	id := NeedleResult{RunID: c.RunID, Manifest: r.Manifest, ModelID: r.ModelID, Memory: c.Memory, Tokens: c.Tokens}
	done := map[int]NeedleResult{}
	for i, x := range c.Have {
		_, twice := done[x.Trial]
		if x.RunID != id.RunID || x.Manifest != id.Manifest || x.ModelID != id.ModelID || x.Memory != id.Memory || x.Tokens != id.Tokens || x.Trial < 0 || x.Trial >= len(m.Trials) || twice {
			return r, fmt.Errorf("qccbench: result %d is of another run, manifest, model or memory, or of a trial that is there already: name another file", i+1)
		}
		done[x.Trial] = x
	}
	w, err := newWriter(dev, t, c.Tokens, c.Chunk)
	if err != nil {
		return r, err
	}
	ids := t.Plain(string(text))
	if len(ids) == 0 {
		err = fmt.Errorf("qccbench: the text has no tokens")
	}
	for i := 0; i < len(m.Trials) && err == nil; i++ {
		x, ok := done[i]
		if !ok {
			x = id
			x.Trial = i
			err = x.run(ctx, w, full, own, m.Trials[i], m.Context, ids)
			if err == nil && c.Emit != nil {
				err = c.Emit(x)
			}
		}
		if err == nil {
			err = r.add(x, m.Trials[i])
		}
		if err == nil && c.Progress != nil {
			c.Progress(i+1, len(m.Trials))
		}
	}
	if e := w.close(); err == nil {
		err = e
	}
	if err != nil {
		return r, err
	}
	r.finish(m, m.drawn(text))
	return r, nil
}

// check refuses a manifest that is none, or not of the text.
func (m Manifest) check(text []byte) error {
	good := m.Schema == manifestSchema && m.Context > 0 && m.Context <= 1<<26 && len(m.Trials) > 0
	for _, t := range m.Trials {
		good = good && len(t.Needles) > 0 && t.From >= 0 && t.From < 1
		for _, n := range slices.Concat(t.Needles, t.Distractors) {
			good = good && n.Key != "" && firstNumber(n.Value) == n.Value && n.Value != "" && n.Depth >= 0 && n.Depth < 1
		}
	}
	if !good {
		return fmt.Errorf("qccbench: this is no manifest: make one with samebit bench qcc-make-real-retrieval-1m")
	}
	if digest(text) != m.TextSHA {
		return fmt.Errorf("qccbench: the manifest was made for another text: give that one")
	}
	return nil
}

// drawn reports whether the trials are what [NewManifest] draws: whoever lays them down by
// hand may put every needle where a bounded memory still has it.
func (m Manifest) drawn(text []byte) bool {
	t := m.Trials[0]
	d, err := NewManifest(text, ManifestConfig{Trials: len(m.Trials), Context: m.Context, Needles: len(t.Needles), Distractors: len(t.Distractors), Seed: m.Seed})
	return err == nil && reflect.DeepEqual(d.Trials, m.Trials)
}

// WriteManifest writes a manifest.
func WriteManifest(w io.Writer, m Manifest) error { return json.NewEncoder(w).Encode(m) }

// run asks both models for all needles of a trial. A model that fails is no error, but
// a miss that says why.
func (r *NeedleResult) run(ctx context.Context, w *writer, full, own *nn.Decoder, t NeedleTrial, n int, text []int32) error {
	for _, x := range t.Needles {
		r.Answers = append(r.Answers, NeedleAnswer{Depth: x.Depth, Value: x.Value})
	}
	ids, err := t.hide(n, text, w.text.Plain)
	if err != nil {
		return fmt.Errorf("qccbench: trial %d: %w", r.Trial, err)
	}
	for _, arm := range []struct {
		d   *nn.Decoder
		set func(a *NeedleAnswer, found string)
	}{
		{own, func(a *NeedleAnswer, found string) { a.QCC = found }},
		{full, func(a *NeedleAnswer, found string) { a.Full = found }},
	} {
		err := w.ask(ctx, arm.d, ids, t.Needles, func(i int, answer string) { arm.set(&r.Answers[i], firstNumber(answer)) })
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			r.Error = err.Error()
		}
	}
	return nil
}

// ask reads a context once and goes on from it with each question.
func (w *writer) ask(ctx context.Context, d *nn.Decoder, ids []int32, needles []Needle, found func(i int, answer string)) error {
	var questions [][]int32
	for _, n := range needles {
		q := w.text.Plain(n.question())
		if err := w.room(d, len(ids)+len(q)); err != nil {
			return err
		}
		questions = append(questions, q)
	}
	r, err := w.start(ctx, d, ids)
	if err != nil {
		return err
	}
	defer r.Close()
	for i, q := range questions {
		f, err := r.Fork()
		if err != nil {
			return err
		}
		err = w.read(ctx, f, q)
		if err == nil {
			var text string
			if text, _, err = w.more(ctx, f); err == nil {
				found(i, text)
			}
		}
		f.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// add counts a trial.
func (r *NeedlesResult) add(x NeedleResult, t NeedleTrial) error {
	if len(x.Answers) != len(t.Needles) {
		return fmt.Errorf("qccbench: the result of trial %d has %d answers, want %d: name another file", x.Trial, len(x.Answers), len(t.Needles))
	}
	r.Trials++
	if x.Error != "" {
		if r.Errors++; r.Errors == 1 {
			r.FirstError = x.Error
		}
	}
	own, full := true, true
	for i, a := range x.Answers {
		n := t.Needles[i]
		q := quarters[int(4*n.Depth)]
		if r.Depths[q] == nil {
			r.Depths[q] = new(DepthBucket)
		}
		b := r.Depths[q]
		a.QCC, a.Full = a.QCC+x.Error, a.Full+x.Error // what failed has found nothing
		r.Needles, b.Needles = r.Needles+1, b.Needles+1
		if a.QCC == n.Value {
			r.NeedleQCC, b.QCC = r.NeedleQCC+1, b.QCC+1
		}
		if a.Full == n.Value {
			r.NeedleFull, b.Full = r.NeedleFull+1, b.Full+1
			if a.QCC != n.Value {
				r.MissedOnes++
			}
		}
		own, full = own && a.QCC == n.Value, full && a.Full == n.Value
	}
	if own {
		r.QCC++
	}
	if full {
		r.Full++
		if !own {
			r.Missed++
		}
	}
	return nil
}

func (r *NeedlesResult) finish(m Manifest, drawn bool) {
	trials, needles := float64(r.Trials), float64(r.Needles)
	r.QCC, r.Full, r.Missed = r.QCC/trials, r.Full/trials, r.Missed/trials
	r.NeedleQCC, r.NeedleFull, r.MissedOnes = r.NeedleQCC/needles, r.NeedleFull/needles, r.MissedOnes/needles
	for _, b := range r.Depths {
		n := float64(b.Needles)
		b.QCC, b.Full = b.QCC/n, b.Full/n
		b.Ratio = ratio(b.QCC, b.Full)
	}
	r.Context, r.RandomDepth, r.Multi, r.Distractors = m.Context, drawn, true, drawn
	for _, t := range m.Trials {
		r.Multi, r.Distractors = r.Multi && len(t.Needles) > 1, r.Distractors && len(t.Distractors) > 0
	}
	if r.Trials < evidenceTrials {
		r.NotEvidence = append(r.NotEvidence, fmt.Sprintf("%d trials, at least %d are due", r.Trials, evidenceTrials))
	}
	if m.Context < evidenceTokens {
		r.NotEvidence = append(r.NotEvidence, fmt.Sprintf("contexts of %d tokens, at least %d are due", m.Context, evidenceTokens))
	}
	if !drawn {
		r.NotEvidence = append(r.NotEvidence, "the trials are not those that the manifest's seed draws: depths and distractors may have been chosen")
	}
	if r.Errors > 0 {
		r.NotEvidence = append(r.NotEvidence, fmt.Sprintf("%d trials could not be run", r.Errors))
	}
}

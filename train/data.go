package train

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"samebit/grad/lm"
	"samebit/token"
	"samebit/train/tasks"
)

const (
	endOfText = "<|endoftext|>"
	endOfTurn = "<|im_end|>"
)

// Streams of random numbers that must not meet.
const (
	forTraining = iota
	forVocabulary
	forValidation
	forReport
	forWeights
)

// seed derives a seed for one use.
func (c *Config) seed(use uint64) uint64 {
	return rand.New(rand.NewPCG(c.Seed, use)).Uint64()
}

// data is what a training reads.
type data struct {
	cfg      *Config
	tok      *token.Tokenizer
	end      int32   // end of text
	prose    []int32 // to train on
	heldOut  []int32 // prose to judge with
	perToken float64 // bytes of a token of a task's context
}

// readProse reads the prose files, one text, and says the SHA-256 of what each adds to it.
func readProse(names []string) (text string, sums []string, err error) {
	var b strings.Builder
	for _, name := range names {
		path := name
		if rest, ok := strings.CutPrefix(name, "$GOROOT"); ok {
			root, err := goroot()
			if err != nil {
				return "", nil, err
			}
			path = filepath.Join(root, rest)
		}
		file, err := os.ReadFile(path)
		if err != nil {
			return "", nil, fmt.Errorf("train: prose: %w", err)
		}
		file = bytes.ReplaceAll(file, []byte("\r\n"), []byte("\n"))
		b.Write(file)
		sums = append(sums, fmt.Sprintf("%x", sha256.Sum256(file)))
	}
	return b.String(), sums, nil
}

// goroot is where the Go toolchain lies.
func goroot() (string, error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	root := strings.TrimSpace(string(out))
	if err != nil || root == "" {
		return "", fmt.Errorf("train: prose: $GOROOT is not known: `go env GOROOT` says %q (%v)", root, err)
	}
	return root, nil
}

func newData(c *Config, tok *token.Tokenizer, prose string) (*data, error) {
	d := &data{cfg: c, tok: tok, end: tok.ID(endOfText)}
	ids := tok.EncodePlain(nil, prose)
	cut := len(ids) - len(ids)/20
	d.prose, d.heldOut = ids[:cut], ids[cut:]
	for i, s := range c.Stages {
		if s.Prose > 0 && len(d.prose) < s.Most {
			return nil, fmt.Errorf("train: prose has %d tokens to train on, stages[%d] wants sequences of %d", len(d.prose), i, s.Most)
		}
	}
	size, rows := 0, 0
	for i := range uint64(64) {
		text := tasks.Make(tasks.Config{Seed: c.seed(forVocabulary), Bytes: 1000, Style: tasks.Value}, i).Text()
		size += len(text)
		rows += len(tok.Encode(nil, text))
	}
	d.perToken = float64(size) / float64(rows)
	return d, nil
}

// batch makes the sequences of step n, counted from 1.
func (d *data) batch(n int) []lm.Sequence {
	i, _ := d.cfg.stage(n)
	s := &d.cfg.Stages[i]
	r := rand.New(rand.NewPCG(d.cfg.seed(forTraining), uint64(n)))
	var out []lm.Sequence
	for rows := 0; rows < s.Rows; {
		var q lm.Sequence
		size := s.Least + r.IntN(s.Most-s.Least)
		if r.Float64() < s.Prose {
			at := r.IntN(len(d.prose) - size)
			q = d.text(d.prose[at:at+size], s.ProseText)
		} else {
			t := tasks.Config{Seed: r.Uint64(), Kinds: s.Kinds, Formats: s.Formats, Questions: 1, Style: s.Style}
			if s.Answers > 1 {
				t.Questions += r.IntN(s.Answers)
			}
			q = d.task(d.fit(t, 0, size, s.Most), cmp.Or(s.Text, d.cfg.Text))
		}
		out = append(out, q)
		rows += len(q.Tokens)
	}
	return out
}

// fit makes a task of about size rows, at most most if it can be that short.
func (d *data) fit(t tasks.Config, index uint64, size, most int) tasks.Sample {
	t.Bytes = max(1, int(float64(size)*d.perToken)-60*t.Questions)
	for {
		s := tasks.Make(t, index)
		n := 1 + len(d.tok.Encode(nil, s.Text()))
		switch {
		case n <= most || t.Bytes == 1 && t.Questions == 1:
			return s
		case t.Bytes == 1:
			t.Questions = (t.Questions + 1) / 2
		}
		t.Bytes = max(1, t.Bytes*most/n*9/10)
	}
}

// text is prose as a sequence: every token is learned.
func (d *data) text(ids []int32, weight float32) lm.Sequence {
	q := lm.Sequence{Tokens: append([]int32{d.end}, ids[:len(ids)-1]...), Targets: ids}
	if weight != 0 && weight != 1 {
		q.Weights = slices.Repeat([]float32{weight}, len(ids))
	}
	return q
}

// task is a sample as a sequence; tokens that are no answer count with weight text.
func (d *data) task(s tasks.Sample, text float32) lm.Sequence {
	ids, answer := d.encode(s)
	n := len(ids) - 1
	q := lm.Sequence{Tokens: ids[:n], Targets: make([]int32, n), Weights: make([]float32, n)}
	for i := range n {
		q.Targets[i], q.Weights[i] = ids[i+1], text
		switch {
		case answer[i+1]:
			q.Weights[i] = 1
		case text == 0:
			q.Targets[i] = -1
		}
	}
	return q
}

// encode turns a sample into tokens and says which are answers. Parts are encoded by
// themselves, since a model is asked with the text before its answer alone.
func (d *data) encode(s tasks.Sample) (ids []int32, answer []bool) {
	ids, answer = []int32{d.end}, []bool{false}
	for _, p := range s.Parts {
		ids = d.tok.Encode(ids, p.Text)
		for len(answer) < len(ids) {
			answer = append(answer, p.Answer)
		}
	}
	return ids, answer
}

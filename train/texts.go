package train

import (
	"fmt"

	"samebit/token"
	"samebit/train/tasks"
)

// Texts make what models of our own are trained on, for whoever trains something
// else with it.
type Texts struct {
	Prose, HeldOut []int32 // of the files, whose last twentieth is held out

	d *data
}

// NewTexts reads files of prose, of which there may be none, named as in Config.
func NewTexts(tok *token.Tokenizer, seed uint64, prose []string) (*Texts, error) {
	text, _, err := readProse(prose)
	if err != nil {
		return nil, err
	}
	d, err := newData(&Config{Seed: seed}, tok, text)
	if err != nil {
		return nil, err
	}
	return &Texts{d.prose, d.heldOut, d}, nil
}

// Tasks makes n sequences of about so many tokens, at most, each a context and up to
// eight questions with their answers; held out are those with names that no training
// sees. The vocabulary must have ChatML's tokens.
func (t *Texts) Tasks(n, rows int, heldOut bool) ([][]int32, error) {
	for _, control := range tasks.Control {
		if t.d.tok.ID(control) < 0 {
			return nil, fmt.Errorf("train: tasks: the vocabulary has no token %s: only models with ChatML's tokens read them", control)
		}
	}
	use := uint64(forTraining)
	if heldOut {
		use = forReport
	}
	var out [][]int32
	for i := range uint64(n) {
		s := t.d.fit(tasks.Config{Seed: t.d.cfg.seed(use), Questions: 8, HeldOut: heldOut}, i, rows, rows)
		ids, _ := t.d.encode(s)
		out = append(out, ids)
	}
	return out, nil
}

package train

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"samebit/internal/wholefile"
	"samebit/token"
	"samebit/train/tasks"
)

// vocabularyFile says what the vocabulary beside the model is and was made of.
const vocabularyFile = "vocabulary.sha256"

// tokenizer reads the training's vocabulary, or trains it. One that has no state beside
// it may be that of a training which was given up.
func (r *run) tokenizer(ctx context.Context, prose string, saved bool) (*token.Tokenizer, error) {
	dir, model := wholefile.OS(r.dir), wholefile.OS(filepath.Join(r.dir, modelDir))
	text, err := ifThere(model.Path("tokenizer.json"))
	if err != nil {
		return nil, err
	}
	if text != nil && !saved {
		made, err := ifThere(dir.Path(vocabularyFile))
		if err != nil {
			return nil, err
		}
		if string(made) != r.origin(text) {
			text = nil
		}
	}
	if text == nil {
		if text, err = vocabulary(ctx, &r.cfg, prose); err != nil {
			return nil, err
		}
		if err := wholefile.Replace(model, "tokenizer.json", writing(text)); err != nil {
			return nil, fmt.Errorf("train: %w", err)
		}
		if err := wholefile.Replace(dir, vocabularyFile, writing([]byte(r.origin(text)))); err != nil {
			return nil, fmt.Errorf("train: %w", err)
		}
	}
	tok, err := token.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("train: %s: %w", model.Path("tokenizer.json"), err)
	}
	return tok, nil
}

// ifThere reads a file; nil if there is none.
func ifThere(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("train: %w", err)
	}
	return text, nil
}

// origin is a digest of a vocabulary's text and of what this training makes its own from.
// With the text in it a file of before a death never vouches for one of after it.
func (r *run) origin(text []byte) string {
	b := r.cfg.basis()
	made, err := json.Marshal([]any{b.Seed, b.Vocabulary, r.prose})
	if err != nil {
		panic(err) // numbers and strings can be written
	}
	return fmt.Sprintf("%x\n", sha256.Sum256(append(made, text...)))
}

// pieceCount is how often a vocabulary sees every piece of the tasks by itself, so that
// pieces are put together before what stands beside each other by chance.
const pieceCount = 2000

// vocabulary trains the tokenizer.
func vocabulary(ctx context.Context, c *Config, prose string) ([]byte, error) {
	n := c.samples()
	texts := func(yield func(string) bool) {
		if ctx.Err() != nil || !yield(prose) || !yield(strings.Repeat(tasks.Lexicon(), pieceCount)) {
			return
		}
		for i := range uint64(n) {
			if ctx.Err() != nil {
				return
			}
			s := tasks.Make(tasks.Config{Seed: c.seed(forVocabulary), Bytes: 1000, Questions: 3}, i)
			text := s.Text()
			for _, control := range tasks.Control {
				text = strings.ReplaceAll(text, control, "\n")
			}
			if !yield(text) {
				return
			}
		}
	}
	text, err := token.Train(iter.Seq[string](texts), token.TrainConfig{Vocab: c.Vocabulary.Size, Special: tasks.Control, Pre: c.Vocabulary.Pre})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return text, err
}

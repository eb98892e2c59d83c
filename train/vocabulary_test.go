package train

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"samebit/token"
	"samebit/train/tasks"
)

// vocabularyIn is the vocabulary of a training in a directory.
func vocabularyIn(ctx context.Context, t testing.TB, c Config, dir string, saved bool) (*token.Tokenizer, error) {
	t.Helper()
	text, sums, err := readProse(c.Prose)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, modelDir), 0o777); err != nil {
		t.Fatal(err)
	}
	r := run{cfg: c, dir: dir, prose: sums}
	return r.tokenizer(ctx, text, saved)
}

// A vocabulary in the directory is taken if the training would make the same, and no
// file is replaced that cannot be read.
func TestVocabularyOfAnotherTraining(t *testing.T) {
	c := small(t, denseModel, 2)
	c.Vocabulary.Size, c.Vocabulary.Samples = 256+len(tasks.Control)+1, 1
	dir := t.TempDir()
	if _, err := vocabularyIn(t.Context(), t, c, dir, false); err != nil {
		t.Fatal(err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	taken := func(c Config, dir string, saved bool) bool { // a cancelled training makes none
		t.Helper()
		_, err := vocabularyIn(cancelled, t, c, dir, saved)
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		return err == nil
	}
	for _, tt := range []struct {
		name         string
		change       func(c *Config, dir string)
		saved, taken bool
	}{
		{"its own", func(*Config, string) {}, false, true},
		{"another model", func(c *Config, _ string) { c.Model = []byte(hybridModel) }, false, true},
		{"another seed", func(c *Config, _ string) { c.Seed++ }, false, false},
		{"another size", func(c *Config, _ string) { c.Vocabulary.Size++ }, false, false},
		{"another text of prose", func(c *Config, _ string) { c.Prose = append(c.Prose, c.Prose[0]) }, false, false},
		{"an older one that does not say", func(_ *Config, dir string) { os.Remove(filepath.Join(dir, vocabularyFile)) }, false, false},
		{"an older one with a state", func(_ *Config, dir string) { os.Remove(filepath.Join(dir, vocabularyFile)) }, true, true},
		{"changed since", func(_ *Config, dir string) {
			f, err := os.OpenFile(filepath.Join(dir, modelDir, "tokenizer.json"), os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteString("\n"); err != nil {
				t.Fatal(err)
			}
			f.Close()
		}, false, false},
	} {
		c, dir := with(c, func(*Config) {}), begun(t, dir)
		tt.change(&c, dir)
		if got := taken(c, dir, tt.saved); got != tt.taken {
			t.Errorf("%s: taken %v, want %v", tt.name, got, tt.taken)
		}
	}
	path := filepath.Join(dir, modelDir, "tokenizer.json")
	if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o777)); err != nil {
		t.Fatal(err)
	}
	if _, err := vocabularyIn(t.Context(), t, c, dir, false); err == nil {
		t.Error("a file that cannot be read was replaced")
	}
}

package train

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"samebit/token"
)

// Texts are the same for everybody, of the size that is asked for, and none of those
// held out is among those to train on.
func TestTexts(t *testing.T) {
	tok, err := token.Open("../models/tiny")
	if err != nil {
		t.Fatal(err)
	}
	path := prose(t)
	make := func(seed uint64) (train, held [][]int32) {
		x, err := NewTexts(tok, seed, []string{path})
		if err != nil {
			t.Fatal(err)
		}
		if len(x.HeldOut) == 0 || len(x.Prose) < 15*len(x.HeldOut) {
			t.Errorf("%d tokens of prose to train on, %d held out", len(x.Prose), len(x.HeldOut))
		}
		if train, err = x.Tasks(6, 300, false); err == nil {
			held, err = x.Tasks(6, 300, true)
		}
		if err != nil {
			t.Fatal(err)
		}
		return train, held
	}
	a, held := make(1)
	b, _ := make(1)
	c, _ := make(2)
	for i := range a {
		if n := len(a[i]); n > 300 || n < 150 {
			t.Errorf("task %d has %d tokens", i, n)
		}
		if !slices.Equal(a[i], b[i]) || slices.Equal(a[i], c[i]) || slices.Equal(a[i], held[i]) {
			t.Errorf("task %d depends on something else than seed and use", i)
		}
	}
	if _, err := NewTexts(tok, 1, []string{filepath.Join(t.TempDir(), "none.txt")}); err == nil {
		t.Error("no error for a file that is not there")
	}
	foreign, err := token.Open("../testdata/models/tokenizers/bpe-llama3-1k")
	if err != nil {
		t.Fatal(err)
	}
	x, err := NewTexts(foreign, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.Tasks(1, 100, false); err == nil || !strings.Contains(err.Error(), "no token") {
		t.Errorf("another vocabulary: %v", err)
	}
}

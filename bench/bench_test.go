package bench

import (
	"context"
	"testing"
)

// Nothing to measure is an error that says so, before anything runs.
func TestRefuses(t *testing.T) {
	for _, cfg := range []ModelConfig{{Repeat: -1}, {Decode: -1}, {Prompts: []int{8, 0}}, {Seqs: []int{0}}} {
		if err := Model(context.Background(), nil, nil, cfg, nil); err == nil {
			t.Errorf("%+v is accepted", cfg)
		}
	}
	if _, err := Load("a model", 0, 1, nil); err == nil {
		t.Error("no loads are accepted")
	}
}

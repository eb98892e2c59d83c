package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"samebit/checkpoint"
	"samebit/qwen3"
)

func TestLongFlags(t *testing.T) {
	for _, tt := range []struct{ in, want, why string }{
		{"run -seed 7 x", "run --seed 7 x", "a long flag with one dash"},
		{"run -model=a/b x", "run --model=a/b x", "its value"},
		{"run -n5 x", "run -n5 x", "a short flag with its value"},
		{"run -n 5 -m f", "run -n 5 -m f", "short flags"},
		{"run -qn 5 x", "run -qn 5 x", "short flags together"},
		{"run -temp -1", "run --temp -1", "a number is no flag"},
		{"run -temp -.5", "run --temp -.5", "nor is this one"},
		{"run -fast x", "run --fast x", "an unknown flag is named whole"},
		{"run -- -seed", "run -- -seed", "what comes after -- is text"},
		{"run -", "run -", "standard input"},
		{"run -stop -END x", "run --stop -END x", "a value that begins with a dash"},
		{"run -m -folder/x.gguf -seed 7", "run -m -folder/x.gguf --seed 7", "likewise, of a short flag"},
		{"run -qm -folder -seed 7", "run -qm -folder --seed 7", "of the last of short flags"},
		{"run -json -seed 7", "run --json --seed 7", "a flag without a value"},
		{"bench -json -seqs -tests batch", "bench --json -seqs --tests batch", "which has one in another command"},
		{"completion bash -no-descriptions", "completion bash --no-descriptions", "flags of commands below commands"},
	} {
		if got := longFlags(newRoot(), strings.Fields(tt.in)); !slices.Equal(got, strings.Fields(tt.want)) {
			t.Errorf("longFlags(%q) = %q, want %q: %s", tt.in, got, tt.want, tt.why)
		}
	}
}

func TestMessage(t *testing.T) {
	for err, want := range map[error]string{
		errors.New("samebit: open x: no"):             "samebit: open x: no",
		errors.New("nn: 5 rows"):                      "samebit: nn: 5 rows",
		errors.Join(errors.New("a"), errors.New("b")): "samebit: a; b",
		fmt.Errorf("samebit: \"%s\"\n", "x\r\ny"):     "samebit: \"x; y\"",
	} {
		if got := message(err); got != want {
			t.Errorf("message(%q) = %q, want %q", err, got, want)
		}
	}
}

func TestPerToken(t *testing.T) {
	infos := []checkpoint.Info{
		{Name: "model.embed_tokens.weight", Bytes: 1000},
		{Name: "model.layers.0.mlp.experts.3.up_proj.weight", Bytes: 800},
		{Name: "blk.0.ffn_up_exps.weight", Bytes: 800},
		{Name: "model.layers.0.mlp.shared_expert.up_proj.weight", Bytes: 30},
		{Name: "lm_head.weight", Bytes: 1000},
	}
	for _, tt := range []struct {
		c    qwen3.Config
		want int64
		why  string
	}{
		{qwen3.Config{Vocab: 100}, 10 + 800 + 800 + 30 + 1000, "one row of the embedding"},
		{qwen3.Config{Vocab: 100, Tied: true}, 1000 + 800 + 800 + 30 + 1000, "a tied embedding is the head"},
		{qwen3.Config{Vocab: 100, Experts: 8, ExpertsPerToken: 2}, 10 + 200 + 200 + 30 + 1000, "two experts of eight"},
	} {
		if got := perToken(infos, &tt.c); got != tt.want {
			t.Errorf("perToken = %d, want %d: %s", got, tt.want, tt.why)
		}
	}
}

// TestStates compares the estimate of doctor with what a model of each kind needs.
func TestStates(t *testing.T) {
	var f fit
	c := qwen3.Config{KVHeads: 2, HeadDim: 256, LayerType: []string{qwen3.LinearAttention, qwen3.LinearAttention, qwen3.LinearAttention, qwen3.FullAttention},
		ConvKernel: 4, KeyHeads: 16, ValueHeads: 32, KeyHeadDim: 128, ValueDim: 128}
	if got, want := f.states(&c), int64(2*2*256*4); got != want || f.State != 1000*want {
		t.Errorf("%d bytes per token, %d per 1,000; want %d", got, f.State, want)
	}
	if want := int64(2 * 4 * 3 * (32*128*128 + 3*(2*16*128+32*128))); f.Fixed != want {
		t.Errorf("%d bytes of recurrent state, want %d", f.Fixed, want)
	}
}

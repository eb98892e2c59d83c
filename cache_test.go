package samebit_test

import (
	"context"
	"strings"
	"testing"

	"samebit"
	"samebit/cache"
)

// With a cache a second conversation with the same beginning, a next turn and a
// restarted program run only what is new, and every text is the one without it.
func TestModelCache(t *testing.T) {
	for _, path := range []string{"testdata/models/gguf/qwen3-bf16.gguf", "testdata/models/gguf/qwen35-f32.gguf"} {
		t.Run(path, func(t *testing.T) {
			dir := t.TempDir()
			cfg := &cache.Config{Dir: dir, Policy: cache.Policy{MinPrefix: 16}}
			open := func(c *cache.Config) *samebit.Model {
				m, err := samebit.Open(path, samebit.Config{Cache: c, Threads: 2})
				if err != nil {
					t.Fatal(err)
				}
				return m
			}
			text := func(m *samebit.Model, prompt string) (string, samebit.Report) {
				var out strings.Builder
				var rep samebit.Report
				for tok, err := range m.Generate(context.Background(), prompt, samebit.Gen{MaxTokens: 12, Ignore: true, Report: &rep}) {
					if err != nil {
						t.Fatal(err)
					}
					out.WriteString(tok.Text)
				}
				return out.String(), rep
			}
			plain, cached := open(nil), open(cfg)
			defer plain.Close()
			system := strings.Repeat("You are a careful assistant who answers briefly. ", 4)
			for i, q := range []string{"One?", "Two, if you please?", "Two, if you please? And three?"} {
				want, _ := text(plain, system+q)
				got, rep := text(cached, system+q)
				if got != want {
					t.Errorf("prompt %d: with a cache %q, without %q", i, got, want)
				}
				if i > 1 && rep.Reused < rep.PromptTokens/2 {
					t.Errorf("prompt %d: %d of %d rows reused", i, rep.Reused, rep.PromptTokens)
				}
			}
			turn := func(m *samebit.Model) (string, samebit.Report) {
				c, err := m.NewChat(samebit.ChatConfig{System: system})
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				var out strings.Builder
				var rep samebit.Report
				for _, q := range []string{"Hello.", "And again."} {
					for tok, err := range c.Send(context.Background(), q, samebit.Gen{MaxTokens: 10, Report: &rep}) {
						if err != nil {
							t.Fatal(err)
						}
						out.WriteString(tok.Text)
					}
				}
				return out.String(), rep
			}
			want, _ := turn(plain)
			if got, _ := turn(cached); got != want {
				t.Errorf("chat with a cache %q, without %q", got, want)
			}
			if err := cached.Close(); err != nil {
				t.Fatal(err)
			}
			again := open(cfg)
			defer again.Close()
			got, rep := text(again, system+"One?")
			if want, _ := text(plain, system+"One?"); got != want {
				t.Errorf("after a restart %q, want %q", got, want)
			}
			if rep.Reused < rep.PromptTokens/2 {
				t.Errorf("after a restart %d of %d rows reused", rep.Reused, rep.PromptTokens)
			}
		})
	}
}

// A pool that checkpoints fill has room for an answer all the same: they make place when
// a step needs a page, as they do for a prompt.
func TestCacheMakesRoom(t *testing.T) {
	const path = "testdata/models/gguf/qwen3-bf16.gguf"
	texts := func(cfg samebit.Config) (all []string) {
		m := open(t, path, cfg)
		for _, prompt := range []string{"One", "Two", "Three", "Four"} {
			prompt = strings.Repeat(prompt+" and more. ", 3)
			all = append(all, generate(t, m, prompt, samebit.Gen{MaxTokens: 150, Ignore: true}))
		}
		return all
	}
	want := texts(samebit.Config{})
	shape := open(t, path, samebit.Config{}).Shape
	page := int64(2*shape.Layers*shape.KVHeads*shape.HeadDim) * 64 * 4
	got := texts(samebit.Config{StateBytes: 5 * page, Cache: &cache.Config{Policy: cache.Policy{MinPrefix: 8}}})
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("text %d is %q in a full pool, %q in a large one", i, got[i], want[i])
		}
	}
}

package token

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"samebit/checkpoint"
)

// readVocab reads the tokenizer keys of a GGUF file.
func readVocab(t testing.TB, path string) Vocab {
	t.Helper()
	set, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	m := set.Meta
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	const prefix = "tokenizer.ggml."
	text := func(key string) (s string) {
		if m.Has(key) {
			s, err = m.String(key)
			check(err)
		}
		return s
	}
	list := func(key string) []string {
		s, err := m.Strings(prefix + key)
		check(err)
		return s
	}
	id := func(key string) int32 {
		if !m.Has(prefix + key + "_token_id") {
			return NoToken
		}
		n, err := m.Int(prefix + key + "_token_id")
		check(err)
		return int32(n)
	}
	v := Vocab{
		Model: text(prefix + "model"), Pre: text(prefix + "pre"), Tokens: list("tokens"), Merges: list("merges"),
		BOS: id("bos"), EOS: id("eos"), EOT: id("eot"), Pad: id("padding"), Unknown: id("unknown"),
		AddBOS: text(prefix+"pre") == "llama-bpe", ChatTemplate: text("tokenizer.chat_template"),
	}
	types, err := m.Ints(prefix + "token_type")
	check(err)
	for _, x := range types {
		v.Types = append(v.Types, int32(x))
	}
	for key, field := range map[string]*bool{"add_bos_token": &v.AddBOS, "add_space_prefix": &v.AddSpacePrefix} {
		if m.Has(prefix + key) {
			*field, err = m.Bool(prefix + key)
			check(err)
		}
	}
	return v
}

// The vocabulary inside a GGUF file encodes as the tokenizer.json it is from.
func TestFromVocabEqualsParse(t *testing.T) {
	paths, err := filepath.Glob("../testdata/models/gguf/*.gguf")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no GGUF files: %v", err)
	}
	g := readGoldens(t, "bpe-512/goldens.json")
	for _, path := range paths {
		v := readVocab(t, path)
		tok, err := FromVocab(v)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if v.Pre == "qwen2" {
			checkGoldens(t, tok, g)
		}
		if tok.ChatTemplate == "" || len(tok.Stops) == 0 {
			t.Errorf("%s: no template or stop", path)
		}
	}
}

func TestFromVocabErrors(t *testing.T) {
	good := func() Vocab {
		return Vocab{
			Model: "gpt2", Pre: "qwen2", Tokens: []string{"a", "b", "ab", "<end>", "pad"},
			Types: []int32{1, 1, 1, 3, 5}, Merges: []string{"a b"},
			BOS: NoToken, EOS: 3, EOT: NoToken, Pad: NoToken, Unknown: NoToken,
		}
	}
	tok, err := FromVocab(good())
	if err != nil {
		t.Fatal(err)
	}
	if got := tok.Encode(nil, "abb<end>padc"); !slices.Equal(got, []int32{2, 1, 3, 0}) {
		t.Errorf("ids %v", got)
	}
	if got := tok.TextSkip([]int32{2, 3, 4, 0}); got != "aba" {
		t.Errorf("text %q", got)
	}
	for _, tt := range []struct {
		want string
		edit func(v *Vocab)
	}{
		{"only gpt2", func(v *Vocab) { v.Model = "llama" }},
		{`pre "default"`, func(v *Vocab) { v.Pre = "default" }},
		{"add_space_prefix", func(v *Vocab) { v.AddSpacePrefix = true }},
		{"have 4 types", func(v *Vocab) { v.Types = v.Types[:4] }},
		{"type 9", func(v *Vocab) { v.Types[0] = 9 }},
		{`both the token "a"`, func(v *Vocab) { v.Tokens[1] = "a" }},
		{"-1 is no token", func(v *Vocab) { v.Merges[0] = "a c" }},
		{"not two tokens", func(v *Vocab) { v.Merges[0] = "ab" }},
		{"eos_token_id 4 is no token", func(v *Vocab) { v.EOS = 4 }},
		{"bos_token_id -5", func(v *Vocab) { v.BOS = -5 }},
		{"has 0 bytes", func(v *Vocab) { v.Tokens[3] = "" }},
	} {
		v := good()
		tt.edit(&v)
		if _, err := FromVocab(v); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got error %v, want %q", err, tt.want)
		}
	}
}

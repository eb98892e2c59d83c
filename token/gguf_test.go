package token

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// readVocab reads the tokenizer keys of a GGUF file, whose metadata fits in
// the first 64 MiB.
func readVocab(t testing.TB, path string) Vocab {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data := make([]byte, 64<<20)
	n, _ := f.ReadAt(data, 0)
	r := ggufReader{data: data[:n]}
	v := Vocab{BOS: NoToken, EOS: NoToken, EOT: NoToken, Pad: NoToken, Unknown: NoToken}
	if string(r.take(4)) != "GGUF" {
		t.Fatalf("%s is no GGUF file", path)
	}
	r.u32()
	r.u64()
	for range r.u64() {
		key, val := r.str(), r.value(r.u32())
		key = strings.TrimPrefix(key, "tokenizer.")
		ids := map[string]*int32{
			"ggml.bos_token_id": &v.BOS, "ggml.eos_token_id": &v.EOS, "ggml.eot_token_id": &v.EOT,
			"ggml.padding_token_id": &v.Pad, "ggml.unknown_token_id": &v.Unknown,
		}
		switch {
		case key == "ggml.model":
			v.Model = val.(string)
		case key == "ggml.pre":
			v.Pre = val.(string)
		case key == "chat_template":
			v.ChatTemplate = val.(string)
		case key == "ggml.add_bos_token":
			v.AddBOS = val.(uint64) != 0
		case key == "ggml.add_space_prefix":
			v.AddSpacePrefix = val.(uint64) != 0
		case key == "ggml.tokens", key == "ggml.merges":
			var list []string
			for _, x := range val.([]any) {
				list = append(list, x.(string))
			}
			if key == "ggml.tokens" {
				v.Tokens = list
			} else {
				v.Merges = list
			}
		case key == "ggml.token_type":
			for _, x := range val.([]any) {
				v.Types = append(v.Types, int32(x.(uint64)))
			}
		case ids[key] != nil:
			*ids[key] = int32(val.(uint64))
		}
	}
	return v
}

type ggufReader struct{ data []byte }

func (r *ggufReader) take(n uint64) []byte {
	b := r.data[:n]
	r.data = r.data[n:]
	return b
}
func (r *ggufReader) u32() uint32 { return binary.LittleEndian.Uint32(r.take(4)) }
func (r *ggufReader) u64() uint64 { return binary.LittleEndian.Uint64(r.take(8)) }
func (r *ggufReader) str() string { return string(r.take(r.u64())) }

// value returns a string, []any, or the bits of a number as uint64.
func (r *ggufReader) value(kind uint32) any {
	switch kind {
	case 8:
		return r.str()
	case 9:
		kind, n := r.u32(), r.u64()
		list := make([]any, n)
		for i := range list {
			list[i] = r.value(kind)
		}
		return list
	}
	var b [8]byte
	copy(b[:], r.take([]uint64{1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8}[kind]))
	return binary.LittleEndian.Uint64(b[:])
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

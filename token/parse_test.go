package token

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// document4 is a small tokenizer.json of the Qwen2 kind.
func document4(vocab, merges, added string) []byte {
	regex := strings.ReplaceAll(splitRegex()["qwen2"], `\`, `\\`)
	return []byte(fmt.Sprintf(`{"version":"1.0","truncation":null,"padding":null,"added_tokens":[%s],"normalizer":{"type":"NFC"},
 "pre_tokenizer":{"type":"Sequence","pretokenizers":[
  {"type":"Split","pattern":{"Regex":"%s"},"behavior":"Isolated","invert":false},
  {"type":"ByteLevel","add_prefix_space":false,"trim_offsets":false,"use_regex":false}]},
 "post_processor":null,"decoder":{"type":"ByteLevel"},
 "model":{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":"","end_of_word_suffix":"","fuse_unk":false,"byte_fallback":false,"ignore_merges":false,
  "vocab":%s,"merges":%s}}`, added, regex, vocab, merges))
}

const (
	goodVocab  = `{"a":0,"b":1,"ab":2,"Ġ":3,"<e>":4,"\u0120a":6}`
	goodMerges = `["a b",["\u0120","a"]]`
	goodAdded  = `{"id":4,"content":"<e>","special":true},{"id":9,"content":"<x y>","special":false}`
)

func TestParseSmall(t *testing.T) {
	tok, err := Parse(document4(goodVocab, goodMerges, goodAdded))
	if err != nil {
		t.Fatal(err)
	}
	if got := tok.Encode(nil, "ab ab<e>c<x y>b"); !slices.Equal(got, []int32{2, 3, 2, 4, 9, 1}) {
		t.Errorf("ids %v", got)
	}
	if got := tok.TextSkip([]int32{2, 4, 9, 6, 5, 7}); got != "ab<x y> a" {
		t.Errorf("text %q", got)
	}
	if tok.Size() != 10 || tok.ID(" a") != 6 || tok.ID("<e>") != 4 || tok.TokenBytes(5) != nil {
		t.Errorf("size %d, ids %d %d", tok.Size(), tok.ID(" a"), tok.ID("<e>"))
	}
}

func TestParseErrors(t *testing.T) {
	const unsupported = true
	replace := func(old, new string) []byte {
		good := string(document4(goodVocab, goodMerges, goodAdded))
		if !strings.Contains(good, old) {
			t.Fatalf("no %q", old)
		}
		return []byte(strings.Replace(good, old, new, 1))
	}
	split, level := `{"type":"Split","pattern":{"Regex":"\\d+"},"behavior":"Isolated","invert":false}`, `{"type":"ByteLevel","add_prefix_space":false,"use_regex":true}`
	pre := func(steps string) []byte {
		good := string(document4(goodVocab, goodMerges, goodAdded))
		head, rest, _ := strings.Cut(good, `"pretokenizers":[`)
		_, tail, _ := strings.Cut(rest, `]},`)
		return []byte(head + `"pretokenizers":[` + steps + `]},` + tail)
	}
	for _, tt := range []struct {
		name, want  string
		unsupported bool
		data        []byte
	}{
		{"other sequence", `["Punctuation" "ByteLevel" "Digits" "Split"]`, unsupported, pre(`{"type":"Punctuation"},` + level + `,{"type":"Digits","individual_digits":false},` + split)},
		{"other pattern", `unknown Split pattern "\\d+"`, unsupported, pre(split + `,{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}`)},
		{"split and own regex", "use_regex true", unsupported, pre(split + "," + level)},
		{"digits in groups", "individual_digits false", unsupported, pre(`{"type":"Digits"},` + level)},
		{"prefix space", "add_prefix_space", unsupported, replace(`"add_prefix_space":false`, `"add_prefix_space":true`)},
		{"behavior", `behavior "Removed"`, unsupported, replace("Isolated", "Removed")},
		{"normalizer", `normalizer "NFKC"`, unsupported, replace(`"NFC"`, `"NFKC"`)},
		{"decoder", `decoder ["WordPiece"]`, unsupported, replace(`"decoder":{"type":"ByteLevel"}`, `"decoder":{"type":"WordPiece"}`)},
		{"no decoder", `decoder []`, unsupported, replace(`"decoder":{"type":"ByteLevel"}`, `"decoder":null`)},
		{"post-processor", `post_processor "BertProcessing"`, unsupported, replace(`"post_processor":null`, `"post_processor":{"type":"BertProcessing"}`)},
		{"template id", "which is no token", false, replace(`"post_processor":null`, `"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"s"}},{"Sequence":{"id":"A"}}],"special_tokens":{"s":{"ids":[77]}}}`)},
		{"template name", `names "s"`, false, replace(`"post_processor":null`, `"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"s"}},{"Sequence":{"id":"A"}}]}`)},
		{"template without text", "text 0 times", unsupported, replace(`"post_processor":null`, `"post_processor":{"type":"TemplateProcessing","single":[]}`)},
		{"model", `model type "Unigram"`, unsupported, replace(`"type":"BPE"`, `"type":"Unigram"`)},
		{"dropout", "dropout 0.1", unsupported, replace(`"dropout":null`, `"dropout":0.1`)},
		{"suffix", "end_of_word_suffix", unsupported, replace(`"end_of_word_suffix":""`, `"end_of_word_suffix":"</w>"`)},
		{"prefix", "continuing_subword_prefix", unsupported, replace(`"continuing_subword_prefix":""`, `"continuing_subword_prefix":"##"`)},
		{"fallback", "byte_fallback", unsupported, replace(`"byte_fallback":false`, `"byte_fallback":true`)},
		{"unk", `unk_token "a"`, unsupported, replace(`"unk_token":null`, `"unk_token":"a"`)},
		{"lstrip", `of "<q>"`, unsupported, document4(goodVocab, goodMerges, `{"id":9,"content":"<q>","lstrip":true}`)},
		{"normalized", `of "<q>"`, unsupported, document4(goodVocab, goodMerges, `{"id":9,"content":"<q>","normalized":true}`)},
		{"foreign alphabet", "byte alphabet", unsupported, document4(`{"▁":0,"a":1,"▁a":2}`, `["▁ a"]`, "")},

		{"empty added", "has 0 bytes", false, document4(goodVocab, goodMerges, `{"id":9,"content":""}`)},
		{"long added", "has 2000 bytes", false, document4(goodVocab, goodMerges, `{"id":9,"content":"`+strings.Repeat("x", 2000)+`"}`)},
		{"added twice", "has ids 9 and 10", false, document4(goodVocab, goodMerges, `{"id":9,"content":"q"},{"id":10,"content":"q"}`)},
		{"added over base", `belongs to "a"`, false, document4(goodVocab, goodMerges, `{"id":0,"content":"q"}`)},
		{"added and base", "has ids 2 and 9", false, document4(goodVocab, goodMerges, `{"id":9,"content":"ab"}`)},
		{"added id", "outside 0..1048575", false, document4(goodVocab, goodMerges, `{"id":1048576,"content":"q"}`)},
		{"id twice", `id 1 is both "b" and "c"`, false, document4(`{"a":0,"b":1,"c":1}`, `[]`, "")},
		{"token twice", `both the token "a"`, false, document4(`{"a":0,"b":1,"a":2}`, `[]`, "")},
		{"odd token twice", "appears twice", false, document4(`{"▁":0,"▁":1}`, `[]`, "")},
		{"huge id", "outside 0..1048575", false, document4(`{"a":4294967296}`, `[]`, "")},
		{"negative id", "id -1", false, document4(`{"a":-1}`, `[]`, "")},
		{"fraction", "is not an integer", false, document4(`{"a":"0"}`, `[]`, "")},
		{"unknown merge", "merge 1, \"b\" + \"a\"", false, document4(goodVocab, `["a b","b a"]`, "")},
		{"merge twice", "repeats merge 0", false, document4(goodVocab, `["a b","a b"]`, "")},
		{"merge of three", "not two tokens", false, document4(goodVocab, `["a b b"]`, "")},
		{"merge parts", "has 3 parts", false, document4(goodVocab, `[["a","b","b"]]`, "")},
		{"merges missing", "needs vocab and merges", false, replace(`"merges"`, `"mergers"`)},
		{"merges null", `'['`, false, document4(goodVocab, "null", "")},
		{"no model", "there is no model", false, []byte(`{"version":"1.0"}`)},
		{"empty", "ends where", false, nil},
		{"array", "found", false, []byte(`[]`)},
		{"cut", "ends", false, document4(goodVocab, goodMerges, goodAdded)[:800]},
		{"trailing", "after the value", false, append(document4(goodVocab, goodMerges, goodAdded), 'x')},
		{"twice", "appears twice", false, replace(`"padding":null`, `"version":null`)},
		{"UTF-8", "not UTF-8", false, []byte("{\"\xff\":0}")},
		{"surrogate", "lone surrogate", false, document4(`{"\ud83d":0}`, `[]`, "")},
		{"escape", "unknown escape", false, document4(`{"\q":0}`, `[]`, "")},
		{"deep", "deeper than", false, []byte(`{"x":` + strings.Repeat("[", 1<<20) + strings.Repeat("]", 1<<20) + `}`)},
		{"wrong type", "JSON from byte", false, replace(`"normalizer":{"type":"NFC"}`, `"normalizer":{"type":7}`)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse(tt.data)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "token: ") {
				t.Errorf("got error %v, want %q", err, tt.want)
			}
			if errors.Is(err, ErrUnsupported) != tt.unsupported {
				t.Errorf("unsupported is %t: %v", !tt.unsupported, err)
			}
		})
	}
}

func TestOpenFiles(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(dir); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "no tokenizer.json") {
		t.Errorf("empty folder: %v", err)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("tokenizer.json", string(document4(goodVocab, goodMerges, goodAdded)))
	write("tokenizer_config.json", `{"bos_token":{"content":"ab"},"eos_token":"<e>","pad_token":"[PAD]","chat_template":[{"name":"tool_use","template":"t"},{"name":"default","template":"d"}]}`)
	tok, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if tok.BOS != 2 || tok.EOS != 4 || tok.Pad != NoToken || tok.ChatTemplate != "d" || !slices.Equal(tok.Stops, []int32{4}) {
		t.Errorf("got %d %d %d %q %v", tok.BOS, tok.EOS, tok.Pad, tok.ChatTemplate, tok.Stops)
	}
	write("chat_template.jinja", "j")
	write("generation_config.json", `{"eos_token_id":[9,4,77]}`)
	if tok, err = Open(dir); err != nil || tok.ChatTemplate != "j" || !slices.Equal(tok.Stops, []int32{4, 9}) {
		t.Errorf("%v, %q, stops %v", err, tok.ChatTemplate, tok.Stops)
	}
	write("generation_config.json", `{"eos_token_id":9}`)
	if tok, err = Open(dir); err != nil || !slices.Equal(tok.Stops, []int32{4, 9}) {
		t.Errorf("%v, stops %v", err, tok.Stops)
	}
	write("generation_config.json", `{"eos_token_id":"x"}`)
	if _, err = Open(dir); err == nil || !strings.Contains(err.Error(), "neither an id nor a list") {
		t.Errorf("got %v", err)
	}
	write("generation_config.json", `{}`)
	write("tokenizer_config.json", `{"eos_token":"<end>"}`)
	if _, err = Open(dir); err == nil || !strings.Contains(err.Error(), `"<end>" is not in the vocabulary`) {
		t.Errorf("got %v", err)
	}
}

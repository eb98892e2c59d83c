package token

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// Whatever the bytes, Parse fails with an error or gives a tokenizer that works.
func FuzzParse(f *testing.F) {
	f.Add(document4(goodVocab, goodMerges, goodAdded))
	f.Add(document4(`{"a":0,"é":1,"▁":2,"":3,"aa":4,"aaa":5}`, `["a a",["aa","a"]]`, `{"id":2,"content":"▁"}`))
	f.Add([]byte(`{"added_tokens":[{"id":3,"content":"<s>","special":true}],"normalizer":null,
		"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},{"type":"ByteLevel","add_prefix_space":false}]},
		"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"s"}},{"Sequence":{"id":"A"}}],"special_tokens":{"s":{"ids":[3]}}},
		"decoder":{"type":"ByteLevel"},"model":{"ignore_merges":true,"vocab":{"a":0,"b":1,"ab":2,"\u00e9":4},"merges":["a b"]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		tok, err := Parse(data)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "token: ") || len(err.Error()) > 1000 {
				t.Errorf("error %q", err)
			}
			return
		}
		text := "aaa <e>é 12 \n\xff" + string(data[:min(len(data), 100)])
		ids := tok.EncodeSpecial(nil, text)
		for _, id := range ids {
			if id < 0 || int(id) >= tok.Size() || tok.TokenBytes(id) == nil {
				t.Errorf("id %d of %d", id, tok.Size())
			}
		}
		if got, want := stream(t, tok, ids, false), tok.Text(ids); got != want {
			t.Errorf("stream %q, text %q", got, want)
		}
	})
}

// Encoding equals the slow reference; decoding gives the text back, in NFC.
func FuzzEncodeRoundTrip(f *testing.F) {
	for _, s := range snippets {
		f.Add(s + "x " + s)
	}
	var toks []*Tokenizer
	var refs []*reference
	for _, name := range smallNames {
		toks = append(toks, small(f, name))
		refs = append(refs, newReference(f, name))
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 2000 {
			return
		}
		for i, tok := range toks {
			ids := tok.Encode(nil, text)
			if longestMarkRun(text) < markRun { // the reference's NFC is norm's
				if want := refs[i].encode(text); !slices.Equal(ids, want) {
					t.Errorf("%s: %q\n got %v\nwant %v", smallNames[i], text, ids, want)
				}
			}
			if got := string(tok.Decode(nil, ids)); !tok.NFC && got != text {
				t.Errorf("%s: %q comes back as %q", smallNames[i], text, got)
			}
			got := tok.Text(ids)
			if !utf8.ValidString(got) || got != stream(t, tok, ids, false) {
				t.Errorf("%s: %q: text %q", smallNames[i], text, got)
			}
			plain := tok.EncodePlain(nil, text)
			if slices.ContainsFunc(plain, tok.IsSpecial) {
				t.Errorf("%s: %q: special in %v", smallNames[i], text, plain)
			}
		}
	})
}

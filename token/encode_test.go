package token

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestEncodePlain(t *testing.T) {
	tok := small(t, "bpe-qwen2-2k")
	text := "<|im_end|>\n<|im_start|>system<think>"
	ids := tok.EncodePlain(nil, text)
	if slices.ContainsFunc(ids, tok.IsSpecial) {
		t.Errorf("special token in %v", ids)
	}
	if got := tok.Text(ids); got != text {
		t.Errorf("comes back as %q", got)
	}
	if !slices.Contains(ids, tok.ID("<think>")) {
		t.Error("<think> is not special and should be recognised")
	}
	if ids := tok.Encode(nil, text); !tok.IsSpecial(ids[0]) {
		t.Errorf("Encode gives %v", ids)
	}
}

func TestAddedTokensLongestFirst(t *testing.T) {
	tok, err := Parse(document4(`{"a":0,"b":1,"c":2,"<":3}`, `[]`, `
		{"id":10,"content":"<a","special":true}, {"id":11,"content":"<a>","special":false},
		{"id":12,"content":"<ab>x","special":true}, {"id":13,"content":"a>b","special":false}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		text string
		want []int32
	}{
		{"<a>b", []int32{11, 1}}, // the leftmost wins, then the longest
		{"<ab>", []int32{10, 1}}, // a longer token that fails falls back
		{"<ab>x<", []int32{12, 3}},
		{"a<a>bc", []int32{0, 11, 1, 2}},
		{"ca>b", []int32{2, 13}},
	} {
		if got := tok.Encode(nil, tt.text); !slices.Equal(got, tt.want) {
			t.Errorf("Encode(%q) = %v, want %v", tt.text, got, tt.want)
		}
	}
}

// Texts on which a quadratic algorithm takes minutes.
func TestEncodeIsNotQuadratic(t *testing.T) {
	n := 1 << 18
	if testing.Short() {
		n = 1 << 14
	}
	for _, name := range []string{"bpe-qwen2-2k", "bpe-smollm-1k", "bpe-llama3-1k"} {
		tok := small(t, name)
		for _, unit := range []string{"a", " ", "\n", "-", "e\u0301", "\u0301\u0323", "<|im_start", "<|im_end|>", " \n", "漢", "\xff", "1", "' "} {
			text := strings.Repeat(unit, n/len(unit))
			ids := tok.Encode(nil, text)
			if got := string(tok.Decode(nil, ids)); !tok.NFC && got != text {
				t.Errorf("%s: %q repeated does not come back", name, unit)
			}
		}
	}
}

func TestConcurrentEncode(t *testing.T) {
	tok := small(t, "bpe-qwen2-2k")
	texts := readGoldens(t, "bpe-qwen2-2k/goldens.json").Encode
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range texts {
				e := texts[(i*7+g*100)%len(texts)]
				ids := tok.Encode(nil, e.Text)
				if !slices.Equal(ids, e.IDs) {
					t.Errorf("goroutine %d: %q: %v", g, e.Text, ids)
				}
				if got := tok.Text(ids); got != *e.Decoded {
					t.Errorf("goroutine %d: %q comes back as %q", g, e.Text, got)
				}
			}
		})
	}
	wg.Wait()
}

func TestEncodeAppends(t *testing.T) {
	tok := small(t, "bpe-512")
	dst := tok.Encode([]int32{-1, -2}, "hello")
	if !slices.Equal(dst[:2], []int32{-1, -2}) || !slices.Equal(dst[2:], tok.Encode(nil, "hello")) {
		t.Errorf("got %v", dst)
	}
	ids := tok.Encode(nil, "the quick brown fox 123")
	if n := testing.AllocsPerRun(100, func() { ids = tok.Encode(ids[:0], "the quick brown fox 123") }); n != 0 {
		t.Errorf("%g allocations into a slice that is large enough", n)
	}
}

func ExampleTokenizer_Encode() {
	tok, err := Open("../testdata/models/tokenizers/bpe-qwen2-2k")
	if err != nil {
		fmt.Println(err)
		return
	}
	ids := tok.Encode(nil, "<|im_start|>user\nHello there<|im_end|>")
	fmt.Println(ids)
	fmt.Printf("%q\n", tok.TextSkip(ids))
	d := Decoder{Tokenizer: tok, SkipSpecial: true}
	for _, id := range ids {
		fmt.Printf("%q ", d.Push(id))
	}
	fmt.Printf("%q\n", d.Flush())
	// Output:
	// [2040 84 546 198 39 370 352 1762 2041]
	// "user\nHello there"
	// "" "u" "ser" "\n" "H" "el" "lo" " there" "" ""
}

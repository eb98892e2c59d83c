package token

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// stream decodes ids one at a time and checks that each part is valid UTF-8.
func stream(t testing.TB, tok *Tokenizer, ids []int32, skip bool) string {
	t.Helper()
	d := Decoder{Tokenizer: tok, SkipSpecial: skip}
	var b strings.Builder
	for _, id := range ids {
		s := d.Push(id)
		if !utf8.ValidString(s) {
			t.Errorf("Push(%d) of %v gave %q", id, ids, s)
		}
		b.WriteString(s)
	}
	b.WriteString(d.Flush())
	if d.Flush() != "" {
		t.Errorf("second Flush after %v gave text", ids)
	}
	return b.String()
}

func TestStreamEqualsText(t *testing.T) {
	// Characters of several tokens: emoji, joined emoji, flags, Han.
	text := "a😀b 👩‍👩‍👧‍👦 🇩🇪🇯🇵 漢字かな 한국어 𝔘𝔫𝔦 e\u0301 \ufffd end"
	for _, name := range smallNames {
		tok := small(t, name)
		ids := tok.Encode(nil, text)
		want := text
		if tok.NFC {
			want = nfc(text)
		}
		if got := stream(t, tok, ids, false); got != want {
			t.Errorf("%s: stream gave %q", name, got)
		}
		// Any cut of the ids, and ids at random, agree with Text.
		for n := range ids {
			checkText(t, tok, ids[:n], tok.Text(ids[:n]), false)
		}
		rng := rand.New(rand.NewPCG(1, 2))
		for range 2000 {
			ids := make([]int32, rng.IntN(9))
			for i := range ids {
				ids[i] = rng.Int32N(int32(tok.Size()+9)) - 3 // some do not exist
			}
			checkText(t, tok, ids, tok.Text(ids), false)
			checkText(t, tok, ids, tok.TextSkip(ids), true)
		}
	}
}

func TestPushHoldsBackOnlyWhatMayContinue(t *testing.T) {
	tok := small(t, "bpe-qwen2-2k")
	byteID := func(b byte) int32 { return tok.byteID[b] }
	d := Decoder{Tokenizer: tok}
	for i, step := range []struct {
		b    byte
		want string
	}{
		{0xF0, ""}, {0x9F, ""}, {0x98, ""}, {0x80, "😀"},
		{0xE4, ""}, {'b', "\ufffdb"}, // a broken character comes out with what broke it
		{0xFF, "\ufffd"},                   // never the start of one
		{0xED, ""}, {0xA0, "\ufffd\ufffd"}, // no surrogates: A0 cannot follow ED
		{0xC3, ""},
	} {
		if got := d.Push(byteID(step.b)); got != step.want {
			t.Errorf("step %d: Push(%#x) = %q, want %q", i, step.b, got, step.want)
		}
	}
	if got := d.Flush(); got != "\ufffd" {
		t.Errorf("Flush = %q", got)
	}
}

func TestTokenBytesAreRaw(t *testing.T) {
	tok := small(t, "bpe-qwen2-2k")
	for b := range 256 {
		if got := tok.TokenBytes(tok.byteID[b]); !bytes.Equal(got, []byte{byte(b)}) {
			t.Errorf("token of byte %#x has bytes %x", b, got)
		}
	}
	for _, id := range []int32{-1, int32(tok.Size()), 1 << 30} {
		if tok.TokenBytes(id) != nil || tok.IsSpecial(id) {
			t.Errorf("id %d exists", id)
		}
	}
	ids := tok.Encode(nil, "\ufffd") // a real U+FFFD survives
	if got := tok.Decode(nil, ids); !bytes.Equal(got, []byte{0xEF, 0xBF, 0xBD}) {
		t.Errorf("U+FFFD decodes to %x", got)
	}
}

func TestPushDoesNotAllocate(t *testing.T) {
	tok := small(t, "bpe-qwen2-2k")
	ids := tok.Encode(nil, "The quick brown fox, 123.")
	d := Decoder{Tokenizer: tok}
	if n := testing.AllocsPerRun(100, func() {
		for _, id := range ids {
			d.Push(id)
		}
	}); n != 0 {
		t.Errorf("%g allocations", n)
	}
}

// A Tokenizer that nobody opened has no tokens; asking it is no crash.
func TestZeroTokenizer(t *testing.T) {
	var tok Tokenizer
	if ids := tok.EncodeSpecial(nil, "text"); len(ids) != 0 || tok.Size() != 0 {
		t.Errorf("ids %v of %d", ids, tok.Size())
	}
	ids := tok.EncodePlain(nil, "text")
	ids = tok.EncodeGuarded(ids, tok.Guard("text", "!"), "!")
	if len(ids) != 0 || tok.Text([]int32{0, -5, 1 << 30}) != "" || tok.TokenBytes(3) != nil {
		t.Errorf("ids %v", ids)
	}
	var d Decoder
	if s := d.Push(0) + d.Flush(); s != "" {
		t.Errorf("decoder without a tokenizer says %q", s)
	}
}

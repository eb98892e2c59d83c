package token

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

const goldenDir = "../testdata/models/tokenizers"

// goldens are made with the Hugging Face tokenizers library; see the README
// two folders above them.
type goldens struct {
	Special map[string]int32
	Encode  []struct {
		Text        string
		IDs         []int32
		WithSpecial []int32 `json:"ids_with_special"`
		Decoded     *string `json:"text_decoded"`
		DecodedSkip *string `json:"text_decoded_skip"`
	}
	Decode []struct {
		IDs  []int32
		Text string
	}
}

func readGoldens(t testing.TB, file string) goldens {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(goldenDir, file))
	if err != nil {
		t.Fatal(err)
	}
	var g goldens
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	if len(g.Encode) < 400 {
		t.Fatalf("%s has only %d texts", file, len(g.Encode))
	}
	return g
}

func checkGoldens(t *testing.T, tok *Tokenizer, g goldens) {
	t.Helper()
	for _, e := range g.Encode {
		got := tok.Encode(nil, e.Text)
		if !slices.Equal(got, e.IDs) {
			t.Errorf("Encode(%.80q)\n got %v\nwant %v", e.Text, got, e.IDs)
		}
		want := e.IDs
		if e.WithSpecial != nil {
			want = e.WithSpecial
		}
		if got := tok.EncodeSpecial([]int32{-7}, e.Text); !slices.Equal(got[1:], want) {
			t.Errorf("EncodeSpecial(%.80q)\n got %v\nwant %v", e.Text, got[1:], want)
		}
		if e.Decoded != nil {
			checkText(t, tok, e.IDs, *e.Decoded, false)
		}
		if e.DecodedSkip != nil {
			checkText(t, tok, e.IDs, *e.DecodedSkip, true)
		}
	}
	for _, d := range g.Decode {
		checkText(t, tok, d.IDs, d.Text, false)
	}
}

// checkText compares both ways of decoding with want.
func checkText(t *testing.T, tok *Tokenizer, ids []int32, want string, skip bool) {
	t.Helper()
	got := tok.Text(ids)
	if skip {
		got = tok.TextSkip(ids)
	}
	if got != want {
		t.Errorf("Text(%v), skip %t\n got %q\nwant %q", ids, skip, got, want)
	}
	if got := stream(t, tok, ids, skip); got != want {
		t.Errorf("Decoder(%v), skip %t\n got %q\nwant %q", ids, skip, got, want)
	}
}

func small(t testing.TB, name string) *Tokenizer {
	t.Helper()
	tok, err := Open(filepath.Join(goldenDir, name))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

var smallNames = []string{"bpe-qwen2-2k", "bpe-qwen35-1k", "bpe-llama3-1k", "bpe-smollm-1k", "bpe-512"}

func TestGoldens(t *testing.T) {
	for _, name := range smallNames {
		t.Run(name, func(t *testing.T) {
			checkGoldens(t, small(t, name), readGoldens(t, name+"/goldens.json"))
		})
	}
}

func TestOpenReadsConfig(t *testing.T) {
	tok := small(t, "bpe-llama3-1k")
	if got := string(tok.TokenBytes(tok.BOS)); got != "<|begin_of_text|>" {
		t.Errorf("BOS is %d, %q", tok.BOS, got)
	}
	if got := string(tok.TokenBytes(tok.EOS)); got != "<|eot_id|>" || !tok.IsStop(tok.EOS) || !tok.IsSpecial(tok.EOS) {
		t.Errorf("EOS is %d, %q, stops %v", tok.EOS, got, tok.Stops)
	}
	if tok.Size() != 1280 || tok.Pre != "llama-bpe" || tok.NFC {
		t.Errorf("size %d, pre %q, NFC %t", tok.Size(), tok.Pre, tok.NFC)
	}
	tok = small(t, "bpe-512")
	if tok.BOS != NoToken || tok.Pad != 503 || !slices.Equal(tok.Stops, []int32{505}) {
		t.Errorf("BOS %d, pad %d, stops %v", tok.BOS, tok.Pad, tok.Stops)
	}
	if tok.IsSpecial(510) || tok.ID("<think>") != 510 || tok.ID(" ") < 0 || tok.ID("no such") != NoToken {
		t.Error("ID or IsSpecial of bpe-512 is wrong")
	}
}

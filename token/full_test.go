package token

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// fullFile returns the path of a full vocabulary, or skips: they are too large
// for the repository. scripts/fetch-tokenizers.sh fetches them.
func fullFile(t testing.TB, name string) string {
	t.Helper()
	if dir := os.Getenv("SAMEBIT_TOKENIZERS"); dir != "" {
		return filepath.Join(dir, name)
	}
	return cached(t, "tokenizers", name, "scripts/fetch-tokenizers.sh")
}

// cached returns the path of a fetched file, or skips.
func cached(t testing.TB, dir, name, script string) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skip(err)
	}
	path := filepath.Join(cache, "samebit", dir, name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%v; %s fetches it", err, script)
	}
	return path
}

// readFull returns the contents of a full vocabulary after checking its sum
// against the index of the goldens.
func readFull(t testing.TB, name, key string) []byte {
	t.Helper()
	data, err := os.ReadFile(fullFile(t, name))
	if err != nil {
		t.Fatal(err)
	}
	index, err := os.ReadFile(filepath.Join(goldenDir, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	var sums struct {
		Large map[string]struct{ SHA256 string }
	}
	if err := json.Unmarshal(index, &sums); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	if got, want := hex.EncodeToString(sum[:]), sums.Large[key].SHA256; got != want {
		t.Fatalf("%s has sha256 %s, want %s", name, got, want)
	}
	return data
}

func full(t testing.TB, name string) *Tokenizer {
	t.Helper()
	tok, err := Parse(readFull(t, name+".json", name))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func TestFullGoldens(t *testing.T) {
	for _, name := range []string{"qwen3", "llama3"} {
		t.Run(name, func(t *testing.T) {
			checkGoldens(t, full(t, name), readGoldens(t, name+".goldens.json"))
		})
	}
	t.Run("qwen35", func(t *testing.T) {
		g := readGoldens(t, "qwen35.goldens.json")
		tok, err := parseRanks(readFull(t, "qwen35.tiktoken", "qwen35"), "qwen35", g.Special)
		if err != nil {
			t.Fatal(err)
		}
		checkGoldens(t, tok, g)
	})
	t.Run("smollm2", func(t *testing.T) {
		tok, err := FromVocab(readVocab(t, cached(t, "models", "SmolLM2-135M-Instruct.Q4_1.gguf", "scripts/fetch-weights.sh")))
		if err != nil {
			t.Fatal(err)
		}
		checkGoldens(t, tok, readGoldens(t, "smollm2.goldens.json"))
		for b, id := range tok.byteID {
			missing := slices.Contains([]int{4, 6, 19, 20, 22, 29, 192, 193}, b) || b == 241 || b == 242 || b >= 245
			if (id < 0) != missing {
				t.Errorf("byte %d has id %d", b, id)
			}
		}
	})
}

// The two sources of Qwen3 agree where both know the added tokens.
func TestQwen3RankFile(t *testing.T) {
	tok := full(t, "qwen3")
	special := map[string]int32{"<|endoftext|>": 151643, "<|im_start|>": 151644, "<|im_end|>": 151645}
	ranks, err := parseRanks(readFull(t, "qwen3.tiktoken", "qwen3_rank_file"), "qwen2", special)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range readGoldens(t, "qwen3.goldens.json").Encode {
		if slices.ContainsFunc(e.IDs, func(id int32) bool { return id > 151645 }) {
			continue
		}
		if got := ranks.Encode(nil, e.Text); !slices.Equal(got, e.IDs) {
			t.Errorf("%.60q: got %v, want %v", e.Text, got, e.IDs)
		}
	}
	if tok.Size() != 151669 || tok.ID("<think>") != 151667 || tok.IsSpecial(151667) || !tok.IsSpecial(151645) {
		t.Errorf("size %d, <think> %d", tok.Size(), tok.ID("<think>"))
	}
}

// Faults that other engines had with the Qwen2 vocabulary; ids from the
// tokenizers library.
func TestQwen3Pieces(t *testing.T) {
	tok := full(t, "qwen3")
	for _, tt := range []struct {
		text, why string
		want      []int32
	}{
		{"->", "punctuation stays together", []int32{405}},
		{"(x):\n", "a line break joins the punctuation before it", []int32{2075, 982}},
		{"12345", "digits are alone", []int32{16, 17, 18, 19, 20}},
		{"Hello world! Cafe deja vu (with accents) - 123 + emoji", "plain", []int32{9707, 1879, 0, 42773, 75633, 32514, 320, 4197, 58470, 8, 481, 220, 16, 17, 18, 488, 42365}},
		{"Hello world! Café déjà vu (with accents) - 123 + 😀", "accents, emoji", []int32{9707, 1879, 0, 65671, 45839, 32514, 320, 4197, 58470, 8, 481, 220, 16, 17, 18, 488, 90316}},
		{"a\nb", "a line feed", []int32{64, 198, 65}},
		{"a\r\nb", "is not a carriage return and one", []int32{64, 319, 65}},
		{`a\nb`, "nor a backslash and an n", []int32{64, 1699, 65}},
		{"<|im_end|>\u0338", "normalising the whole text would fuse > and the overlay", []int32{151645, 136, 116}},
	} {
		if got := tok.Encode(nil, tt.text); !slices.Equal(got, tt.want) {
			t.Errorf("Encode(%q) = %v, want %v (%s)", tt.text, got, tt.want, tt.why)
		}
	}
}

// Loading holds little more than the tables: see BenchmarkParse for the time.
func TestFullMemory(t *testing.T) {
	for _, name := range []string{"qwen3", "llama3"} {
		t.Run(name, func(t *testing.T) {
			data := readFull(t, name+".json", name)
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			start := time.Now()
			tok, err := Parse(data)
			took := time.Since(start)
			if err != nil {
				t.Fatal(err)
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			held := int64(after.HeapAlloc) - int64(before.HeapAlloc)
			t.Logf("%d ids: %.1f MB held, %v to load", tok.Size(), float64(held)/1e6, took)
			if held > 16e6 {
				t.Errorf("holds %d bytes", held)
			}
			runtime.KeepAlive(data)
			runtime.KeepAlive(tok)
		})
	}
}

func BenchmarkParse(b *testing.B) {
	for _, name := range []string{"qwen3", "llama3"} {
		b.Run(name, func(b *testing.B) {
			data := readFull(b, name+".json", name)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Parse(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// mixedText is a megabyte of prose in several scripts, code and numbers, from
// the golden texts.
func mixedText(t testing.TB) string {
	var b strings.Builder
	texts := readGoldens(t, "bpe-512/goldens.json").Encode
	for b.Len() < 1<<20 {
		for _, e := range texts {
			if !strings.Contains(e.Text, "<|") {
				b.WriteString(e.Text)
				b.WriteByte('\n')
			}
		}
	}
	return b.String()[:1<<20]
}

func BenchmarkEncode(b *testing.B) {
	source, err := os.ReadFile("bpe.go")
	if err != nil {
		b.Fatal(err)
	}
	texts := []struct{ name, text string }{
		{"mixed", mixedText(b)},
		{"code", strings.Repeat(string(source), 1<<20/len(source))},
		{"letter", strings.Repeat("a", 1<<20)},
		{"spaces", strings.Repeat(" ", 1<<20)},
	}
	for _, name := range []string{"qwen3", "llama3"} {
		for _, tt := range texts {
			b.Run(name+"/"+tt.name, func(b *testing.B) {
				tok := full(b, name)
				b.SetBytes(int64(len(tt.text)))
				b.ReportAllocs()
				var ids []int32
				for b.Loop() {
					ids = tok.Encode(ids[:0], tt.text)
				}
				b.ReportMetric(float64(len(ids)), "ids")
			})
		}
	}
}

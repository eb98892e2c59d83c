package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Every golden checkpoint opens, has the sizes that index.json records, and the
// shapes that its own config implies.
func TestGoldenCheckpoints(t *testing.T) {
	var index struct {
		Checkpoints map[string]struct {
			Parameters int64 `json:"parameters"`
			ModelBytes int64 `json:"model_bytes"`
		} `json:"checkpoints"`
	}
	b, err := os.ReadFile(filepath.Join(testdata, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &index); err != nil {
		t.Fatal(err)
	}
	for _, dir := range golden(t, "checkpoints/*") {
		name := filepath.Base(dir)
		t.Run(name, func(t *testing.T) {
			s := mustOpen(t, dir)
			sum := s.Summary()
			if sum.Format != Safetensors || !strings.HasSuffix(sum.Architecture, "ForCausalLM") && !strings.HasSuffix(sum.Architecture, "ForConditionalGeneration") {
				t.Errorf("format %v, architecture %q", sum.Format, sum.Architecture)
			}
			want := index.Checkpoints[name]
			var files int64
			for _, f := range sum.Files {
				files += f.Bytes
			}
			// The hub form of qwen3.5 has extra tensors that index.json does not count.
			if sum.Parameters < want.Parameters || !strings.HasPrefix(name, "qwen35") && sum.Parameters != want.Parameters {
				t.Errorf("%d parameters, want %d", sum.Parameters, want.Parameters)
			}
			if len(sum.Files) == 1 && files != want.ModelBytes {
				t.Errorf("%d bytes of files, want %d", files, want.ModelBytes)
			}
			var c struct {
				Hidden int `json:"hidden_size"`
				Vocab  int `json:"vocab_size"`
				Text   struct {
					Hidden int `json:"hidden_size"`
					Vocab  int `json:"vocab_size"`
				} `json:"text_config"`
			}
			if err := json.Unmarshal(s.Config(), &c); err != nil {
				t.Fatal(err)
			}
			embed, shape := "model.embed_tokens.weight", []int{c.Vocab, c.Hidden}
			if c.Text.Vocab > 0 {
				embed, shape = "model.language_model.embed_tokens.weight", []int{c.Text.Vocab, c.Text.Hidden}
			}
			e, err := s.Tensor(embed)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(e.Shape, shape) {
				t.Errorf("%s has shape %v, want %v", embed, e.Shape, shape)
			}
			v, err := e.Float32s()
			if err != nil {
				t.Fatal(err)
			}
			if len(v) != e.Len() || v[0] == 0 || math.IsNaN(float64(v[len(v)-1])) {
				t.Errorf("%d values from %v to %v, want %d", len(v), v[0], v[len(v)-1], e.Len())
			}
			if len(s.GenerationConfig()) == 0 {
				t.Error("no generation config")
			}
			if s.Metadata()["format"] != "pt" {
				t.Errorf("metadata %v", s.Metadata())
			}
		})
	}
}

// The bf16 checkpoints hold the fp32 numbers rounded to bf16, which checks values,
// offsets and shards of every tensor at once.
func TestGoldenBF16IsRoundedFP32(t *testing.T) {
	for _, name := range []string{"qwen3-untied", "qwen2", "llama3", "qwen3next-moe"} {
		wide := mustOpen(t, filepath.Join(testdata, "checkpoints", name+"-fp32"))
		narrow := mustOpen(t, filepath.Join(testdata, "checkpoints", name+"-bf16"))
		if diff := cmp.Diff(wide.Names(), narrow.Names()); diff != "" {
			t.Fatalf("%s: names differ (-fp32 +bf16):\n%s", name, diff)
		}
		for _, n := range wide.Names() {
			we, _ := wide.Tensor(n)
			ne, _ := narrow.Tensor(n)
			w, err1 := we.Float32s()
			v, err2 := ne.Float32s()
			if err1 != nil || err2 != nil || len(w) != len(v) {
				t.Fatalf("%s %s: %d and %d values, %v, %v", name, n, len(w), len(v), err1, err2)
			}
			for i := range w {
				u := math.Float32bits(w[i])
				rounded := math.Float32frombits((u + 0x7fff + u>>16&1) &^ 0xffff)
				if ne.Type == F32 {
					rounded = v[i]
					if d := math.Abs(float64(w[i] - v[i])); d > 1e-2*math.Abs(float64(w[i]))+1e-30 {
						t.Fatalf("%s %s[%d]: %v and %v", name, n, i, w[i], v[i])
					}
				}
				if rounded != v[i] {
					t.Fatalf("%s %s[%d]: bf16 file has %v, fp32 %v rounds to %v", name, n, i, v[i], w[i], rounded)
				}
			}
		}
	}
}

// Writing what was read gives the bytes that the reference writer made.
func TestRewriteGoldenSafetensors(t *testing.T) {
	files := slices.Concat(golden(t, "checkpoints/*/model*.safetensors"), golden(t, "checkpoints/*/expected.safetensors"),
		golden(t, "unit/*.safetensors"), golden(t, "gguf/*.safetensors"))
	if len(files) < 60 {
		t.Fatalf("only %d files", len(files))
	}
	for _, path := range files {
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		s := mustOpen(t, path)
		if got := stBytes(t, entries(t, s), s.Metadata()); !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes written, %d read, first difference at %d", path, len(got), len(want), firstDiff(got, want))
		}
		s.Close()
	}
}

func firstDiff(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

func TestGoldenGGUF(t *testing.T) {
	var index struct {
		Files map[string]struct {
			Arch  string            `json:"arch"`
			From  string            `json:"from_checkpoint"`
			Type  string            `json:"matrix_type"`
			Types map[string]string `json:"tensor_types"`
		} `json:"files"`
	}
	b, err := os.ReadFile(filepath.Join(testdata, "gguf/index.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &index); err != nil {
		t.Fatal(err)
	}
	for _, path := range golden(t, "gguf/*.gguf") {
		name := filepath.Base(path)
		t.Run(name, func(t *testing.T) {
			s, want := mustOpen(t, path), index.Files[name]
			if sum := s.Summary(); sum.Format != GGUF || sum.Architecture != want.Arch {
				t.Errorf("format %v, architecture %q, want %q", sum.Format, sum.Architecture, want.Arch)
			}
			for n, typ := range want.Types {
				if in, ok := s.Info(n); !ok || in.Type.String() != typ {
					t.Errorf("%s has type %v, want %s", n, in.Type, typ)
				}
			}
			if in, _ := s.Info("blk.0.ffn_down.weight"); want.Type != "" && in.Type.String() != want.Type {
				t.Errorf("ffn_down has type %v, want %s", in.Type, want.Type)
			}
			tokens, err := s.Meta.Strings("tokenizer.ggml.tokens")
			if err != nil {
				t.Fatal(err)
			}
			embed, _ := s.Info("token_embd.weight")
			hidden, err := s.Meta.Int(want.Arch + ".embedding_length")
			if err != nil || !slices.Equal(embed.Shape, []int{len(tokens), hidden}) {
				t.Errorf("token_embd has shape %v, want [%d %d] (%v)", embed.Shape, len(tokens), hidden, err)
			}
			types, err := s.Meta.Ints("tokenizer.ggml.token_type")
			if err != nil || len(types) != len(tokens) {
				t.Errorf("%d token types, %v", len(types), err)
			}
			sameAsCheckpoint(t, s, want.From)
			raw, _ := os.ReadFile(path)
			var kv []KV
			for _, k := range s.Meta.Keys() {
				v, err := s.Meta.Value(k)
				if err != nil {
					t.Fatal(err)
				}
				kv = append(kv, KV{k, v})
			}
			if got := ggufBytes(t, entries(t, s), kv); !bytes.Equal(got, raw) {
				// The golden lists infos in another order than its data; the contents must agree.
				again := mustOpen(t, writeFile(t, filepath.Join(t.TempDir(), "again.gguf"), got))
				sameSets(t, again, s)
			}
		})
	}
}

// sameAsCheckpoint compares tensors that a converter copies unchanged.
func sameAsCheckpoint(t *testing.T, s *Set, from string) {
	t.Helper()
	if from == "" {
		return
	}
	c := mustOpen(t, filepath.Join(testdata, "checkpoints", from))
	for gguf, hf := range map[string]string{"token_embd.weight": "model.embed_tokens.weight", "blk.1.ffn_up.weight": "model.layers.1.mlp.up_proj.weight"} {
		a, err := s.Tensor(gguf)
		if err != nil {
			t.Fatal(err)
		}
		b, err := c.Tensor(hf)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(a.Shape, b.Shape) {
			t.Errorf("%s has shape %v, %s %v", gguf, a.Shape, hf, b.Shape)
		}
		if a.Type == b.Type && !bytes.Equal(a.Data, b.Data) {
			t.Errorf("%s and %s differ", gguf, hf)
		}
	}
}

func sameSets(t *testing.T, got, want *Set) {
	t.Helper()
	if diff := cmp.Diff(want.Names(), got.Names()); diff != "" {
		t.Fatalf("names (-want +got):\n%s", diff)
	}
	for _, n := range want.Names() {
		a, err1 := got.Tensor(n)
		b, err2 := want.Tensor(n)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		if a.Type != b.Type || !slices.Equal(a.Shape, b.Shape) || !bytes.Equal(a.Data, b.Data) {
			t.Errorf("tensor %q: %v %v, want %v %v, or other data", n, a.Type, a.Shape, b.Type, b.Shape)
		}
	}
	for _, k := range want.Meta.Keys() {
		a, _ := got.Meta.Value(k)
		b, _ := want.Meta.Value(k)
		if !reflect.DeepEqual(a, b) {
			t.Errorf("key %q: %v, want %v", k, a, b)
		}
	}
}

// The one real model that scripts/fetch-weights.sh brings; skipped without it.
func TestSmolLM2(t *testing.T) {
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skip(err)
	}
	path := filepath.Join(cache, "samebit/models/SmolLM2-135M-Instruct.Q4_1.gguf")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		t.Skip("not fetched; run scripts/fetch-weights.sh")
	}
	s := mustOpen(t, path)
	sum := s.Summary()
	got := []int64{int64(sum.Tensors), sum.Parameters, int64(len(s.Meta.Keys()))}
	if want := []int64{272, 134515008, 33}; !slices.Equal(got, want) || sum.Architecture != "llama" {
		t.Errorf("tensors, parameters, keys = %v, want %v; architecture %q", got, want, sum.Architecture)
	}
	e, err := s.Tensor("token_embd.weight")
	if err != nil || e.Type != Q8_0 || !slices.Equal(e.Shape, []int{49152, 576}) {
		t.Errorf("token_embd: %v %v, %v", e.Type, e.Shape, err)
	}
	e, err = s.Tensor("blk.0.ffn_down.weight")
	if err != nil || e.Type != Q4_1 || !slices.Equal(e.Shape, []int{576, 1536}) {
		t.Errorf("ffn_down: %v %v, %v", e.Type, e.Shape, err)
	}
	tokens, err := s.Meta.Strings("tokenizer.ggml.tokens")
	if err != nil || len(tokens) != 49152 || tokens[1] != "<|im_start|>" {
		t.Errorf("%d tokens, %v", len(tokens), err)
	}
	eps, err := s.Meta.Float("llama.attention.layer_norm_rms_epsilon")
	if err != nil || eps != float64(float32(1e-5)) {
		t.Errorf("eps %v, %v", eps, err)
	}
}

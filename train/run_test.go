package train

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"samebit/backend/cpu"
	"samebit/checkpoint"
	"samebit/grad/journal"
	"samebit/internal/wholefile"
	"samebit/internal/wholefile/wholetest"
	"samebit/qwen3"
	"samebit/token"
)

const denseModel = `{"model_type": "qwen3", "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 2,
	"num_key_value_heads": 1, "head_dim": 16, "rms_norm_eps": 1e-6, "tie_word_embeddings": true, "max_position_embeddings": 1024, "rope_theta": 10000.0}`

const hybridModel = `{"model_type": "qwen3_5_text", "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 2,
	"num_key_value_heads": 1, "head_dim": 16, "rms_norm_eps": 1e-6, "tie_word_embeddings": true, "max_position_embeddings": 1024,
	"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}, "linear_num_key_heads": 2,
	"linear_num_value_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4,
	"layer_types": ["linear_attention", "full_attention"], "attn_output_gate": true}`

// small is a config of a few steps.
func small(t testing.TB, model string, steps int) Config {
	t.Helper()
	c, err := ParseConfig(fmt.Appendf(nil, `{"name": "small", "seed": 5, "vocabulary": {"size": 300, "samples": 20}, "model": %s,
		"stages": [{"steps": %d, "rows": 300, "least": 40, "most": 200, "answers": 3}, {"steps": %d, "rows": 400, "least": 60, "most": 300, "prose": 0.3, "prose_text": 0.5}],
		"prose": [%q], "optimiser": {"rate": 0.003, "floor": 0.1, "warmup": 2, "decay": 0.01, "clip": 1}, "text": 0.2,
		"validation": {"every": 4, "samples": 5, "lengths": [64]}, "save": 3}`, model, steps/2, steps-steps/2, prose(t)))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// prose is a file of text.
func prose(t testing.TB) string {
	path := filepath.Join(t.TempDir(), "prose.txt")
	r := rand.New(rand.NewPCG(1, 2))
	var b bytes.Buffer
	for range 3000 {
		b.WriteString([]string{"the", "light", "of", "stars", "and", "glass", "bends"}[r.IntN(7)] + " ")
	}
	if err := os.WriteFile(path, b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

type setup struct {
	cfg     cpu.Config
	options Options
}

func (s setup) run(t testing.TB, ctx context.Context, c Config, dir string) (Result, error) {
	t.Helper()
	dev, err := cpu.New(s.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	s.options.Device = dev
	return Run(ctx, c, dir, s.options)
}

// begun is a directory of a training that has made the vocabulary of another one and
// no more: making it takes most of the time of a small training.
func begun(t testing.TB, other string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, modelDir), 0o777); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{vocabularyFile, filepath.Join(modelDir, "tokenizer.json")} {
		text, err := os.ReadFile(filepath.Join(other, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The weights are the same on any number of workers, in any micro-batches, with
// blocks kept or run again, and when the training is interrupted at any step.
func TestSameWeightsWhatever(t *testing.T) {
	for name, model := range map[string]string{"dense": denseModel, "hybrid": hybridModel} {
		t.Run(name, func(t *testing.T) {
			steps := 12
			if testing.Short() {
				steps = 6
			}
			c := small(t, model, steps)
			plain := t.TempDir()
			want, err := setup{}.run(t, t.Context(), c, plain)
			if err != nil {
				t.Fatal(err)
			}
			if want.Steps != steps || want.Best == nil {
				t.Fatalf("%+v", want)
			}
			for _, s := range []setup{
				{cpu.Config{Threads: 1}, Options{}}, {cpu.Config{Threads: 8}, Options{MicroRows: 1}},
				{cpu.Config{Threads: 2, Impl: "generic"}, Options{MicroRows: 100}}, {cpu.Config{Threads: 4}, Options{Recompute: true, MicroRows: 10000}},
			} {
				got, err := s.run(t, t.Context(), c, begun(t, plain))
				if err != nil {
					t.Fatal(err)
				}
				if got.Hash != want.Hash {
					t.Errorf("%+v: hash %s, not %s", s, got.Hash, want.Hash)
				}
			}
			r := rand.New(rand.NewPCG(9, 9))
			dir := t.TempDir()
			var got Result
			for try := 0; ; try++ {
				ctx, cancel := context.WithCancel(t.Context())
				left := 1 + r.IntN(4)
				s := setup{cpu.Config{Threads: 1 + try%3}, Options{Progress: func(Step) {
					if left--; left == 0 {
						cancel()
					}
				}}}
				got, err = s.run(t, ctx, c, dir)
				cancel()
				if err == nil {
					break
				}
				if !errors.Is(err, context.Canceled) || try > 20 {
					t.Fatal(err)
				}
			}
			if got.Hash != want.Hash || got.BestAt != want.BestAt {
				t.Errorf("interrupted: %+v, not %+v", got, want)
			}
			same(t, plain, dir, journal.LogFile, "model/model.safetensors", "model/config.json", "model/tokenizer.json", "model/tokenizer_config.json")
		})
	}
}

// same compares files of two directories.
func same(t *testing.T, a, b string, names ...string) {
	t.Helper()
	for _, name := range names {
		x, err := os.ReadFile(filepath.Join(a, name))
		if err != nil {
			t.Fatal(err)
		}
		y, err := os.ReadFile(filepath.Join(b, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(x, y) {
			t.Errorf("%s differs", name)
		}
	}
}

// Wherever the process or the machine dies while it saves, the training goes on to
// the same weights.
func TestDeathWhileSaving(t *testing.T) {
	c := small(t, denseModel, 4)
	c.Validation, c.Save = Validation{}, 2
	for i := range c.Stages { // of steps that take little beside what saves them
		c.Stages[i].Rows, c.Stages[i].Least, c.Stages[i].Most = 60, 20, 60
	}
	plain := t.TempDir()
	want, err := setup{}.run(t, t.Context(), c, plain)
	if err != nil {
		t.Fatal(err)
	}
	for _, lost := range []bool{false, true} {
		for at := 0; ; at++ {
			dir := begun(t, plain) // the vocabulary is not saved by what dies here
			f := wholetest.New(dir, 1, at)
			f.Lost = lost
			_, err := setup{options: Options{folder: f}}.run(t, t.Context(), c, dir)
			f.Settle(t)
			got, again := setup{}.run(t, t.Context(), c, dir)
			if again != nil || got.Hash != want.Hash {
				t.Fatalf("death at operation %d, machine too: %v: %v, hash %s, not %s", at, lost, again, got.Hash, want.Hash)
			}
			if err == nil {
				break
			}
			if at > 100 {
				t.Fatal("saving never ends")
			}
		}
	}
	cancelledUnsaved(t, c, begun(t, plain))
}

// A cancelled training that cannot save does not look like one that did.
func cancelledUnsaved(t *testing.T, c Config, dir string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f := wholetest.New(dir, 1, 1)
	f.FailOn = errors.New("the disk is full")
	_, err := setup{options: Options{folder: f, Progress: func(Step) { cancel() }}}.run(t, ctx, c, dir)
	if !errors.Is(err, f.FailOn) || errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "stopped after step 1") {
		t.Errorf("cancelled, and the disk is full: %v", err)
	}
}

// A directory is not mistaken for that of another training, and stays as it was.
func TestForeignDirectory(t *testing.T) {
	c := small(t, denseModel, 2)
	dir := t.TempDir()
	if _, err := (setup{}).run(t, t.Context(), c, dir); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(filepath.Join(dir, journal.StateFile))
	if err != nil {
		t.Fatal(err)
	}
	other := c
	other.Seed++
	if _, err := (setup{}).run(t, t.Context(), other, dir); err == nil || !strings.Contains(err.Error(), "another config") {
		t.Errorf("another config: %v", err)
	}
	for _, n := range []int{0, 7, len(before) / 2, len(before) - 1} {
		if err := os.WriteFile(filepath.Join(dir, journal.StateFile), before[:n], 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := (setup{}).run(t, t.Context(), c, dir); err == nil || !strings.Contains(err.Error(), journal.StateFile) {
			t.Errorf("a state of %d bytes: %v", n, err)
		}
	}
}

func TestConfigErrors(t *testing.T) {
	good := small(t, denseModel, 4)
	for want, change := range map[string]func(c *Config){
		"vocabulary.size":    func(c *Config) { c.Vocabulary.Size = 100 },
		"stages is empty":    func(c *Config) { c.Stages = nil },
		"at least 1":         func(c *Config) { c.Stages[1].Steps = 0 },
		"context is 1024":    func(c *Config) { c.Stages[1].Most = 2000 },
		"no kind":            func(c *Config) { c.Stages[0].Kinds = append(c.Stages[0].Kinds, "riddle") },
		"prose names no":     func(c *Config) { c.Prose = nil },
		"optimiser":          func(c *Config) { c.Optimiser.Rate = -1 },
		"text is":            func(c *Config) { c.Text = 2 },
		"residual is":        func(c *Config) { c.Residual = -1 },
		"validation.lengths": func(c *Config) { c.Validation.Lengths = []int{9999} },
		"model":              func(c *Config) { c.Model = []byte(`{"model_type": "gpt2"}`) },
	} {
		c := good
		c.Stages = slices.Clone(good.Stages)
		change(&c)
		if err := c.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	for _, text := range []string{``, `{`, `{"nmae": "x"}`, `[]`} {
		if _, err := ParseConfig([]byte(text)); !errors.Is(err, ErrConfig) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A model is judged by its files alone, the same way at any number of workers.
func TestJudge(t *testing.T) {
	c := small(t, denseModel, 2)
	dir := t.TempDir()
	if _, err := (setup{}).run(t, t.Context(), c, dir); err != nil {
		t.Fatal(err)
	}
	var want *Judgement
	for _, threads := range []int{1, 3} {
		dev, err := cpu.New(cpu.Config{Threads: threads})
		if err != nil {
			t.Fatal(err)
		}
		defer dev.Close()
		set, err := checkpoint.Open(filepath.Join(dir, modelDir))
		if err != nil {
			t.Fatal(err)
		}
		defer set.Close()
		shape, err := qwen3.FromSet(set)
		if err != nil {
			t.Fatal(err)
		}
		dec, err := qwen3.Load(t.Context(), dev, shape, set, qwen3.LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer dec.Close()
		tok, err := token.Open(filepath.Join(dir, modelDir))
		if err != nil {
			t.Fatal(err)
		}
		asked := 0
		j := JudgeConfig{Seed: 3, Lengths: []int{64, 128}, Samples: 7, Prose: c.Prose, Progress: func(done, total int) { asked = done }}
		got, err := Judge(t.Context(), dev, dec, tok, j)
		if err != nil {
			t.Fatal(err)
		}
		if want == nil {
			want = got
		}
		if !reflect.DeepEqual(got, want) || asked != 14 || got.Prose == 0 || len(got.Recall) != 10 || got.Recall[0].Questions != 2 || got.Recall[4].Questions != 1 {
			t.Errorf("%d threads: %d asked, %+v, not %+v", threads, asked, got, want)
		}
		for _, wrong := range []JudgeConfig{{Lengths: []int{31}}, {Lengths: []int{1025}}, {Prose: []string{"nothing.txt"}}} {
			if _, err := Judge(t.Context(), dev, dec, tok, wrong); err == nil {
				t.Errorf("%+v: no error", wrong)
			}
		}
		foreign, err := token.Open("../testdata/models/tokenizers/bpe-llama3-1k")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Judge(t.Context(), dev, dec, foreign, j); err == nil || !strings.Contains(err.Error(), "no token") {
			t.Errorf("another vocabulary: %v", err)
		}
	}
}

var _ wholefile.Folder = (*wholetest.Faulty)(nil)

// A stage with rates of its own goes from one to the other; the others follow the schedule.
func TestRates(t *testing.T) {
	c := small(t, denseModel, 4)
	scheduled := c.rate(c.Steps())
	c.Stages = append(c.Stages, c.Stages[len(c.Stages)-1])
	s := &c.Stages[len(c.Stages)-1]
	n := c.Steps() - s.Steps
	s.Steps, s.Rates = 3, []float64{0.5, 0.25}
	if a, b, end := c.rate(n+1), c.rate(n+2), c.rate(n+3); a != 0.5 || b != 0.375 || end != 0.25 {
		t.Errorf("rates %g, %g, %g", a, b, end)
	}
	if c.rate(n) <= scheduled {
		t.Errorf("rate %g before the stage, %g at the end of a shorter schedule", c.rate(n), scheduled)
	}
	s.Steps = 1
	if got := c.rate(n + 1); got != 0.5 {
		t.Errorf("a stage of one step has rate %g", got)
	}
	for _, wrong := range [][]float64{{}, {0.1}, {0.1, 0}, {1, 0.1}, {0.1, 0.1, 0.1}, {0.1, math.NaN()}} {
		s.Rates = wrong
		if err := c.check(); err == nil || !strings.Contains(err.Error(), "rates") {
			t.Errorf("%v: %v", wrong, err)
		}
	}
}

// Attention of a new model begins as a look-up: keys are queries, the output is the
// transpose of the values times what residual says.
func TestAttentionBeginsAsLookUp(t *testing.T) {
	c := small(t, denseModel, 4)
	c.Residual = 0.5
	shape, _, err := c.shape(0)
	if err != nil {
		t.Fatal(err)
	}
	params, err := shape.Params(nil)
	if err != nil {
		t.Fatal(err)
	}
	at := map[string][]float32{}
	for _, p := range params {
		at[p.Name] = first(&c, &shape, p)
	}
	const layer = "model.layers.0.self_attn."
	q, k, v, o := at[layer+"q_proj.weight"], at[layer+"k_proj.weight"], at[layer+"v_proj.weight"], at[layer+"o_proj.weight"]
	group, wide := shape.Heads/shape.KVHeads, shape.Heads*shape.HeadDim
	for i := range k {
		head, rest := i/(shape.HeadDim*shape.Hidden), i%(shape.HeadDim*shape.Hidden)
		if k[i] != q[head*group*shape.HeadDim*shape.Hidden+rest] {
			t.Fatalf("key %d is not the query of its group", i)
		}
	}
	scale := 0.5 * math.Sqrt(float64(shape.Hidden)/float64(wide))
	for i, x := range o {
		row, column := i/wide, i%wide
		from := v[(column/shape.HeadDim/group*shape.HeadDim+column%shape.HeadDim)*shape.Hidden+row]
		if math.Abs(float64(x)-scale*float64(from)) > 1e-6 {
			t.Fatalf("output [%d, %d] is %g, the value there %g", row, column, x, from)
		}
	}
}

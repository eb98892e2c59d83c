package main

import (
	"fmt"
	"io"
	"path/filepath"
	"runtime/debug"

	"samebit/backend"
	"samebit/checkpoint"
	"samebit/qwen3"
)

// fit is what a model needs, and what that means here.
type fit struct {
	Path         string  `json:"path"`
	Architecture string  `json:"architecture"`
	Parameters   int64   `json:"parameters"`
	Weights      int64   `json:"weight_bytes"`
	PerToken     int64   `json:"read_bytes_per_token"`     // weights that a step reads
	State        int64   `json:"state_bytes_per_1000"`     // keys and values of 1,000 tokens
	Fixed        int64   `json:"state_bytes_fixed"`        // recurrent state
	Work         int64   `json:"work_bytes"`               // activations of a prompt, about
	Context      int     `json:"context"`                  // that the model was made for
	Longest      int     `json:"longest_context"`          // of these that fit, -1 if unknown
	Bound        float64 `json:"tokens_per_second_bound"`  // by reading the weights
	BoundFull    float64 `json:"tokens_per_second_at_end"` // at the longest context
}

// fitOf reads a model's shape. usable is the free memory, 0 if unknown; rate the
// bytes that are read per second.
func fitOf(path string, usable int64, rate float64) (*fit, error) {
	set, shape, err := openSet(path)
	if set != nil {
		defer set.Close()
	}
	if err != nil {
		return nil, err
	}
	sum := set.Summary()
	f := &fit{Path: path, Architecture: sum.Architecture, Parameters: sum.Parameters, Weights: sum.Bytes, Context: shape.Context, Longest: -1}
	f.PerToken = perToken(set.Infos(), &shape)
	perSlot := f.states(&shape)
	// The largest are the rows of a chunk and one row of logits.
	f.Work = 512*4*int64(6*shape.Hidden+3*max(shape.Intermediate, shape.Heads*shape.HeadDim*2)) + 4*int64(shape.Vocab)
	if usable > 0 {
		f.Longest = f.Context
		if perSlot > 0 {
			room := (usable - f.Weights - f.Fixed - f.Work) / (backend.Page * perSlot) * backend.Page
			f.Longest = int(min(max(room, 0), int64(f.Context)))
		} else if usable < f.Weights+f.Fixed+f.Work {
			f.Longest = 0
		}
	}
	if rate > 0 && f.PerToken > 0 {
		f.Bound = rate / float64(f.PerToken)
		f.BoundFull = rate / (float64(f.PerToken) + float64(perSlot)*float64(max(f.Longest, 0)))
	}
	return f, nil
}

// states fills in the sizes of what a sequence remembers, float32 throughout, and
// returns the bytes per token.
func (f *fit) states(c *qwen3.Config) (perSlot int64) {
	var attn, delta int64
	for _, t := range c.LayerType {
		if t == qwen3.LinearAttention {
			delta++
		} else {
			attn++
		}
	}
	perSlot = 2 * 4 * attn * int64(c.KVHeads) * int64(c.HeadDim)
	f.State = 1000 * perSlot
	channels := 2*c.KeyHeads*c.KeyHeadDim + c.ValueHeads*c.ValueDim
	// A pass reads one bank and writes another.
	f.Fixed = 2 * 4 * delta * (int64(c.ValueHeads)*int64(c.KeyHeadDim)*int64(c.ValueDim) + int64(max(c.ConvKernel-1, 0))*int64(channels))
	return perSlot
}

// perToken adds up the weights that one step reads: all but the embedding, of
// which it reads a row (unless it is the head, too), and of experts only the
// chosen ones.
func perToken(infos []checkpoint.Info, c *qwen3.Config) int64 {
	var n int64
	for _, i := range infos {
		switch {
		case isEmbedding(i.Name) && !c.Tied:
			n += i.Bytes / int64(max(c.Vocab, 1))
		case c.Experts > 0 && isExpert(i.Name):
			n += i.Bytes * int64(c.ExpertsPerToken) / int64(c.Experts)
		default:
			n += i.Bytes
		}
	}
	return n
}

func isEmbedding(name string) bool {
	return name == "token_embd.weight" || name == "model.embed_tokens.weight" || name == "model.language_model.embed_tokens.weight"
}

func isExpert(name string) bool {
	for _, pattern := range []string{"*_exps.weight", "*.experts.*"} {
		if ok, _ := filepath.Match(pattern, name); ok { // the patterns are well formed
			return true
		}
	}
	return false
}

func (f *fit) print(w io.Writer) {
	fmt.Fprintf(w, "model\t%s, %s, %s values\n", f.Path, f.Architecture, count(f.Parameters))
	fmt.Fprintf(w, "weights\t%s, of which a token reads %s\n", size(f.Weights), size(f.PerToken))
	if f.Fixed > 0 {
		fmt.Fprintf(w, "state\t%s per 1,000 tokens, and %s once\n", size(f.State), size(f.Fixed))
	} else {
		fmt.Fprintf(w, "state\t%s per 1,000 tokens\n", size(f.State))
	}
	longest := "unknown"
	if f.Longest >= 0 {
		longest = fmt.Sprint(f.Longest)
	}
	fmt.Fprintf(w, "context\t%s tokens fit, the model was made for %d\n", longest, f.Context)
	if f.Bound > 0 {
		fmt.Fprintf(w, "speed\tat most %.1f tokens/s by reading the weights, %.1f at the longest context\n", f.Bound, f.BoundFull)
	}
}

func (f *fit) advice(usable int64) (say []string) {
	switch {
	case f.Longest < 0:
	case f.Longest == 0:
		say = append(say, fmt.Sprintf("the model needs %s and %s are free: choose a smaller one or one with fewer bits per weight, or free memory", size(f.Weights+f.Fixed+f.Work), size(usable)))
	case f.Longest < f.Context:
		say = append(say, fmt.Sprintf("the full context does not fit: limit it with --context %d", f.Longest))
	}
	if f.Bound > 0 && f.Bound < 4 {
		say = append(say, fmt.Sprintf("reading the weights alone allows %.1f tokens/s: a smaller model or fewer bits per weight is faster", f.Bound))
	}
	return say
}

func parent(path string) string { return filepath.Dir(path) }

// version is what the build knows of itself.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown version"
	}
	v := info.Main.Version
	if v == "" {
		v = "(devel)"
	}
	return v + " " + info.GoVersion
}

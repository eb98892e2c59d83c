package qwen3_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"samebit/backend/ref"
	"samebit/checkpoint"
	"samebit/internal/canon"
	"samebit/qwen3"
)

// The parameters are the tensors of the checkpoint, by name and shape, and where the
// decoder reads them lie their values in the form that is said.
func TestParams(t *testing.T) {
	for _, model := range []string{"llama-mha-bias-fp32", "llama3-fp32", "qwen2-fp32", "qwen3-swa-bias-fp32", "qwen3-tied-fp32", "qwen3-untied-fp32", "qwen35-8l-fp32", "qwen35-fp32"} {
		t.Run(model, func(t *testing.T) {
			set, err := checkpoint.Open(filepath.Join(goldens, "checkpoints", model))
			if err != nil {
				t.Fatal(err)
			}
			defer set.Close()
			cfg, err := qwen3.FromSet(set)
			if err != nil {
				t.Fatal(err)
			}
			dec, err := qwen3.Load(context.Background(), ref.New(), cfg, set, qwen3.LoadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer dec.Close()
			params, err := cfg.Params(dec)
			if err != nil {
				t.Fatal(err)
			}
			fresh, err := cfg.Params(nil)
			if err != nil {
				t.Fatal(err)
			}
			listed := map[string]bool{}
			for i, p := range params {
				if f := fresh[i]; f.Name != p.Name || !slices.Equal(f.Shape, p.Shape) || f.Stored != p.Stored {
					t.Errorf("of a new model %s%v is %s%v", p.Name, p.Shape, f.Name, f.Shape)
				}
				name := p.Name
				if _, ok := set.Info(name); !ok {
					name = strings.Replace(name, "model.", "model.language_model.", 1)
				}
				listed[name] = true
				e, err := set.Tensor(name)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(e.Shape, p.Shape) {
					t.Errorf("%s has shape %v, the file says %v", name, p.Shape, e.Shape)
				}
				v, err := e.Float32s()
				if err != nil {
					t.Fatal(err)
				}
				if p.Weight != nil {
					if p.Tensor.Valid() || p.Weight.Out() != p.Shape[0] || p.Weight.In() != p.Shape[1] {
						t.Errorf("%s%v is packed as [%d %d]", name, p.Shape, p.Weight.Out(), p.Weight.In())
					}
					continue
				}
				got, ok := p.Tensor.F32()
				if !ok || len(got) != len(v) {
					t.Fatalf("%s lies in %v", name, p.Tensor)
				}
				for i, x := range v {
					at := i
					switch p.Stored {
					case qwen3.LessOne:
						x = 1 + x
					case qwen3.Logarithm:
						x = canon.Exp(x)
					case qwen3.Transposed:
						taps := p.Shape[2]
						at = i%taps*p.Shape[0] + i/taps
					}
					if got[at] != x {
						t.Fatalf("%s[%d] is used as %v, the file gives %v", name, i, got[at], x)
					}
				}
			}
			for _, n := range set.Names() {
				if !listed[n] && !strings.HasPrefix(n, "mtp.") && !strings.Contains(n, "visual.") && !(cfg.Tied && n == "lm_head.weight") {
					t.Errorf("%s is no parameter", n)
				}
			}
		})
	}
	for _, model := range []string{"qwen3next-moe-fp32", "qwen3next-dense-fp32"} {
		set, err := checkpoint.Open(filepath.Join(goldens, "checkpoints", model))
		if err != nil {
			t.Fatal(err)
		}
		defer set.Close()
		cfg, err := qwen3.FromSet(set)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cfg.Params(nil); err == nil {
			t.Errorf("%s has parameters", model)
		}
	}
}

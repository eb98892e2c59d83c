package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/spf13/cobra"

	"samebit/checkpoint"
	"samebit/qwen3"
)

func newInspect() *cobra.Command {
	var tensors, meta, asJSON bool
	c := &cobra.Command{
		Use:   "inspect [flags] FILE | DIRECTORY",
		Short: "Show what is in a model file",
		Long: `Show what is in a model file: format, architecture, types and sizes of the
weights, the shape of the model, and whether this program can run it. A file that
is truncated or malformed is an error; an architecture that only others can run is not.`,
		Example: `  samebit inspect model.gguf
  samebit inspect --tensors --meta model.gguf
  samebit inspect --json models/Qwen3-0.6B`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("want one file or directory, got %d", len(args))
			}
			return nil
		},
	}
	c.Flags().SortFlags = false
	c.Flags().BoolVar(&tensors, "tensors", false, "list every tensor with its type and shape")
	c.Flags().BoolVar(&meta, "meta", false, "list the metadata (long values are cut, but not in JSON)")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = func(c *cobra.Command, args []string) error {
		set, cfg, cfgErr := openSet(args[0])
		if set == nil {
			return cfgErr
		}
		defer set.Close()
		sum := set.Summary()
		if asJSON {
			out := struct {
				Summary checkpoint.Summary `json:"summary"`
				Config  *qwen3.Config      `json:"config,omitempty"`
				Problem string             `json:"problem,omitempty"`
				Meta    map[string]any     `json:"meta,omitempty"`
				Tensors []checkpoint.Info  `json:"tensors,omitempty"`
			}{Summary: sum}
			if meta {
				var err error
				if out.Meta, err = jsonMeta(set.Meta); err != nil {
					return err
				}
			}
			if cfgErr == nil {
				out.Config = &cfg
			} else {
				out.Problem = cfgErr.Error()
			}
			if tensors {
				out.Tensors = set.Infos()
			}
			return printJSON(c.OutOrStdout(), out)
		}
		w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
		defer w.Flush()
		printSummary(w, sum)
		if cfgErr == nil {
			printConfig(w, &cfg)
		} else {
			fmt.Fprintf(w, "this program\tcannot run it: %v\n", cfgErr)
		}
		if meta {
			fmt.Fprintln(w)
			for _, k := range set.Meta.Keys() {
				v, err := set.Meta.Value(k)
				if err != nil {
					return err
				}
				fmt.Fprintf(w, "%s\t%s\n", short(k), short(v))
			}
		}
		if tensors {
			fmt.Fprintln(w)
			for _, i := range set.Infos() {
				fmt.Fprintf(w, "%s\t%v\t%v\t%d bytes\n", short(i.Name), i.Type, i.Shape, i.Bytes)
			}
		}
		return nil
	}
	return c
}

func printSummary(w *tabwriter.Writer, s checkpoint.Summary) {
	fmt.Fprintf(w, "format\t%v\n", s.Format)
	if s.Architecture != "" {
		fmt.Fprintf(w, "architecture\t%s\n", short(s.Architecture))
	}
	fmt.Fprintf(w, "tensors\t%d with %s values in %s\n", s.Tensors, count(s.Parameters), size(s.Bytes))
	for _, t := range s.Types {
		fmt.Fprintf(w, "  %v\t%d with %s values in %s\n", t.Type, t.Tensors, count(t.Parameters), size(t.Bytes))
	}
	for _, f := range s.Files {
		fmt.Fprintf(w, "file\t%s, %s\n", f.Name, size(f.Bytes))
	}
}

// size is a number of bytes for reading.
func size(n int64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%.0f GiB", float64(n)/(1<<30))
	case n >= 1<<30:
		return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d bytes", n)
}

func count(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.2f billion", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f million", float64(n)/1e6)
	}
	return fmt.Sprint(n)
}

func printConfig(w *tabwriter.Writer, c *qwen3.Config) {
	kinds := map[string]int{}
	for _, t := range c.LayerType {
		kinds[t]++
	}
	var layers []string
	for t, n := range kinds {
		layers = append(layers, fmt.Sprintf("%d %s", n, t))
	}
	slices.Sort(layers)
	fmt.Fprintf(w, "model\t%s, width %d, vocabulary %d, context %d\n", c.ModelType, c.Hidden, c.Vocab, c.Context)
	fmt.Fprintf(w, "layers\t%d: %s\n", c.Layers, strings.Join(layers, ", "))
	fmt.Fprintf(w, "attention\t%d query heads, %d key/value heads of %d, rotary %d (theta %g, %s)\n", c.Heads, c.KVHeads, c.HeadDim, c.Rotary, c.Theta, c.Scaling.Type)
	if c.Experts > 0 {
		fmt.Fprintf(w, "experts\t%d of %d per token\n", c.ExpertsPerToken, c.Experts)
	}
	fmt.Fprintf(w, "head\t%s\n", map[bool]string{true: "tied to the embedding", false: "separate"}[c.Tied])
}

// short is a value on one line, without characters that would move the cursor.
func short(v any) string {
	s := strings.Join(strings.Fields(fmt.Sprint(v)), " ")
	if r := []rune(s); len(r) > 120 {
		s = string(r[:120]) + "…"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}

// jsonMeta is the metadata for JSON, which knows no NaN: such values become text.
func jsonMeta(m checkpoint.Meta) (map[string]any, error) {
	out := map[string]any{}
	for _, k := range m.Keys() {
		v, err := m.Value(k)
		if err != nil {
			return nil, err
		}
		if _, err := json.Marshal(v); err != nil {
			v = fmt.Sprint(v)
		}
		out[k] = v
	}
	return out, nil
}

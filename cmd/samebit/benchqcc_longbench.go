package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"samebit/backend"
	"samebit/bench/qccbench"
)

// readFileAs reads a file that a flag names.
func readFileAs[T any](flag, path string, read func(io.Reader) (T, error)) (v T, err error) {
	f, err := os.Open(path)
	if err != nil {
		return v, fmt.Errorf("--%s: %w", flag, err)
	}
	defer f.Close()
	if v, err = read(f); err != nil {
		err = fmt.Errorf("--%s %s: %w", flag, path, err)
	}
	return v, err
}

// byDataset reads a JSON object with a value for each data set.
func byDataset[T any](r io.Reader) (m map[string]T, err error) {
	if err = json.NewDecoder(r).Decode(&m); err != nil {
		err = fmt.Errorf("want an object with a value for each data set: %w", err)
	}
	return m, err
}

// predictions are files DIR/ARM/DATASET.jsonl, as LongBench's evaluator reads them. They
// are new: it would count lines of an earlier run as well.
type predictions struct {
	dir   string
	files map[string]*os.File
}

func (p *predictions) add(arm, dataset string, line qccbench.Prediction) error {
	name := filepath.Join(p.dir, arm, dataset+".jsonl")
	f := p.files[name]
	if f == nil {
		err := os.MkdirAll(filepath.Dir(name), 0o755)
		if err == nil {
			f, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		}
		if err != nil {
			return fmt.Errorf("--predictions: %w: name a folder without predictions", err)
		}
		p.files[name] = f
	}
	return printJSON(f, line)
}

func (p *predictions) close() (err error) {
	for _, name := range slices.Sorted(maps.Keys(p.files)) {
		err = errors.Join(err, p.files[name].Close())
	}
	return err
}

func benchQCCLongBench() *cobra.Command {
	var af answerFlags
	var cfg qccbench.LongBenchConfig
	var files, scores []string
	var prompts, lengths, dir, report string
	c := qccCommand("longbench", "Answer rows of LongBench with a bounded memory and with the full cache", `Answer rows of LongBench ({"input", "context", "answers", "all_classes", "length",
"dataset", "_id"}, one JSON object a line) with a model and with the same one of bounded
memory, by the likeliest tokens. Prompts are those of --prompts, a JSON file as
LongBench's dataset2prompt.json, or of --prompt; one that is longer than --max-length
loses its middle. --predictions DIR gets DIR/full_kv/DATASET.jsonl and
DIR/qcc/DATASET.jsonl, which LongBench's own eval.py scores. token_f1 and exact_match
here are not its scores: run it on both folders and give what it wrote,
  samebit bench qcc-longbench --report REPORT --scores FULL.json,QCC.json
prints the report with its scores, their means and ratios. full_suite is true only if
all rows of the 21 data sets were asked.
Without --adapter, --window and --sieve the window is 4,096 tokens.`,
		`  samebit bench qcc-longbench -m MODEL --longbench-jsonl data/qasper.jsonl,data/trec.jsonl --prompts config/dataset2prompt.json --max-lengths config/dataset2maxlen.json --predictions pred > report.json
  samebit bench qcc-longbench --report report.json --scores full_kv/result.json,qcc/result.json`,
		func(c *cobra.Command, dev backend.Device, id string) (_ any, err error) {
			if report != "" || len(scores) > 0 {
				return scoreLongBench(c, report, scores)
			}
			switch {
			case len(files) == 0:
				return nil, usagef("bench qcc-longbench: no rows: give --longbench-jsonl FILE")
			case prompts == "" && cfg.Prompt == "":
				return nil, usagef("bench qcc-longbench: no prompts: give --prompts FILE, as LongBench's dataset2prompt.json, or --prompt TEXT with {context} and {input}")
			}
			if err := af.check(c); err != nil {
				return nil, err
			}
			defer func() {
				if err != nil {
					err = fmt.Errorf("bench qcc-longbench: %w", err)
				}
			}()
			if prompts != "" {
				if cfg.Prompts, err = readFileAs("prompts", prompts, byDataset[string]); err != nil {
					return nil, err
				}
			}
			if lengths != "" {
				if cfg.Lengths, err = readFileAs("max-lengths", lengths, byDataset[int]); err != nil {
					return nil, err
				}
			}
			var records []qccbench.LongBenchRecord
			for _, name := range files {
				l, err := readFileAs("longbench-jsonl", name, func(r io.Reader) ([]qccbench.LongBenchRecord, error) {
					return qccbench.ReadLongBench(r, strings.TrimSuffix(filepath.Base(name), filepath.Ext(name)))
				})
				if err != nil {
					return nil, err
				}
				records = append(records, l...)
			}
			full, own, text, close, err := af.open(c, dev)
			if err != nil {
				return nil, err
			}
			defer close()
			if dir != "" {
				p := predictions{dir, map[string]*os.File{}}
				cfg.Emit = p.add
				defer func() { err = errors.Join(err, p.close()) }()
			}
			cfg.RunID, cfg.Memory, cfg.Generated = id, af.memory, af.generated
			bar := newBar("answering", false)
			cfg.Progress = bar.rows
			r, err := qccbench.RunLongBench(c.Context(), dev, full, own, text, records, cfg)
			bar.finish()
			if err == nil && r.Errors == 2*len(r.Records) {
				err = unanswered(c, r, r.Records[0].Full.Error)
			}
			if err != nil {
				return nil, err
			}
			return r, nil
		})
	f := c.Flags()
	f.StringSliceVar(&files, "longbench-jsonl", nil, "`FILES` of rows; one that names no data set is of the file's")
	f.StringVar(&prompts, "prompts", "", "JSON `FILE` with a format for each data set, with {context} and {input}")
	f.StringVar(&cfg.Prompt, "prompt", "", "`TEXT` of the format of all others")
	f.StringVar(&dir, "predictions", "", "write predictions for LongBench's evaluator to folder `DIR` (default: do not)")
	f.StringVar(&report, "report", "", "run nothing, but add --scores to the report in `FILE`")
	f.StringSliceVar(&scores, "scores", nil, "with --report: `FILES` that LongBench's evaluator wrote for the full cache and for the bounded memory")
	af.register(c)
	f.IntVar(&cfg.Max, "max-examples", 0, "answer `N` rows of each data set (0: all)")
	f.IntVar(&cfg.Tokens, "max-new-tokens", 128, "answers of up to `N` tokens")
	f.StringVar(&lengths, "max-lengths", "", "JSON `FILE` with the same number for each data set, as LongBench's dataset2maxlen.json")
	f.IntVar(&cfg.Prefix, "max-length", 0, "prompts of up to `N` tokens (0: what the model's context leaves beside the answer)")
	f.IntVar(&cfg.MinNative, "min-native-context", 128000, "refuse a model whose context is below `N` tokens")
	f.IntVar(&cfg.Chunk, "prefill-chunk-size", 512, "`N` rows of a pass")
	return c
}

// scoreLongBench is a report with the scores of LongBench's evaluator in it.
func scoreLongBench(c *cobra.Command, report string, scores []string) (any, error) {
	if report == "" || len(scores) != 2 {
		return nil, usagef("bench qcc-longbench: give --report FILE and --scores FULL.json,QCC.json together")
	}
	extra := ""
	c.Flags().Visit(func(f *pflag.Flag) {
		if extra == "" && f.Name != "report" && f.Name != "scores" {
			extra = f.Name
		}
	})
	if extra != "" {
		return nil, usagef("bench qcc-longbench: --report says itself what was run: leave --%s out", extra)
	}
	r, err := readFileAs("report", report, func(in io.Reader) (r qccbench.LongBenchResult, err error) {
		err = json.NewDecoder(in).Decode(&r)
		return r, err
	})
	var found [2]map[string]float64
	for i, name := range scores {
		if err == nil {
			found[i], err = readFileAs("scores", name, qccbench.ReadScores)
		}
	}
	if err == nil {
		err = r.Score(found[0], found[1])
	}
	if err != nil {
		return nil, fmt.Errorf("bench qcc-longbench: %w", err)
	}
	return r, nil
}

package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Pairs is what bench/peers/pair.py kept: runs of samebit and of a peer in turn.
type Pairs struct {
	Format int `json:"pair"` // 1
	Runs   []struct {
		Model   string       `json:"model"`
		Round   int          `json:"round"`
		Threads int          `json:"threads"`
		Engine  string       `json:"engine"`
		Cache   string       `json:"kv"` // storage type of keys and values, of samebit
		Results []PairResult `json:"results"`
	} `json:"runs"`
}

// PairResult is one measurement of a run.
type PairResult struct {
	Test    string  `json:"test"`
	N       int     `json:"n"`
	Depth   int     `json:"depth"`
	Seqs    int     `json:"nseq"`
	Setting string  `json:"setting"` // of the peer
	Rate    float64 `json:"rate"`    // tokens/s; of limits GB/s and GFLOP/s
	Bytes   int64   `json:"bytes"`   // that a step reads, of samebit
	Flops   int64   `json:"flops"`   // that a step needs, of samebit
}

// Engines that are no peers.
const (
	Ours   = "samebit"
	Limits = "limits"
)

// OpenPairs reads a result file of pair.py.
func OpenPairs(path string) (*Pairs, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	p := &Pairs{}
	if err := json.Unmarshal(data, p); err != nil || p.Format == 0 {
		return nil, fmt.Errorf("bench: %s is not a file that bench/peers/pair.py --json writes", path)
	}
	if p.Format != 1 {
		return nil, fmt.Errorf("bench: %s has format %d, this program reads 1: measure again, or use the program that belongs to it", path, p.Format)
	}
	return p, nil
}

// Models are those of the file, in its order.
func (p *Pairs) Models() (l []string) {
	for _, r := range p.Runs {
		if !slices.Contains(l, r.Model) {
			l = append(l, r.Model)
		}
	}
	return l
}

// Threads are the numbers of threads that a model was measured with, in the file's order.
func (p *Pairs) Threads(model string) (l []int) {
	for _, r := range p.Runs {
		if r.Model == model && !slices.Contains(l, r.Threads) {
			l = append(l, r.Threads)
		}
	}
	return l
}

// Curve is how one engine does a test of a model at each depth or number of sequences.
type Curve struct {
	Name   string
	Points []CurvePoint // of rising X
}

// CurvePoint holds the rates of all rounds at one place.
type CurvePoint struct {
	X     int // rows before, or sequences
	Rates []float64
}

// Curves returns how a model decodes with so many threads over depths (test "decode") or over sequences
// (test "batch"): samebit with each type of cache, each peer in its default setting and
// in the best one of those that ran in as many rounds, and the bound that the read
// bandwidth of the same rounds sets for the bytes that samebit reads.
func (p *Pairs) Curves(model string, threads int, test string) []Curve {
	type key struct {
		name, setting string
		x             int
	}
	rates := map[key][]float64{}
	var names, settings []string
	bytes, flops := map[int]float64{}, map[int]float64{} // that a token reads and needs, by X
	var read, fma []float64
	for _, run := range p.Runs {
		if run.Model != model || run.Threads != threads {
			continue
		}
		for _, r := range run.Results {
			if run.Engine == Limits {
				switch r.Test {
				case "read":
					read = append(read, 1e9*r.Rate)
				case "fma":
					fma = append(fma, 1e9*r.Rate)
				}
			}
			if r.Test != test {
				continue
			}
			x, name := r.Depth, run.Engine
			if test == "batch" {
				x = r.Seqs
			}
			if run.Engine == Ours && run.Cache != "f32" {
				name += ", " + run.Cache + " cache"
			}
			if name == Ours && r.Bytes > 0 {
				bytes[x] = float64(r.Bytes) / float64(max(1, r.Seqs))
				flops[x] = float64(r.Flops) / float64(max(1, r.Seqs))
			}
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
			if r.Setting != "" && !slices.Contains(settings, r.Setting) {
				settings = append(settings, r.Setting)
			}
			k := key{name, r.Setting, x}
			rates[k] = append(rates[k], r.Rate)
		}
	}
	curve := func(name, label string, pick func(x int) []float64) (c Curve) {
		c.Name = label
		var xs []int
		for k := range rates {
			if k.name == name && !slices.Contains(xs, k.x) {
				xs = append(xs, k.x)
			}
		}
		slices.Sort(xs)
		for _, x := range xs {
			if v := pick(x); len(v) > 0 {
				c.Points = append(c.Points, CurvePoint{x, v})
			}
		}
		return c
	}
	slices.SortStableFunc(names, func(a, b string) int { return rank(a) - rank(b) })
	var all []Curve
	add := func(c Curve) {
		if len(c.Points) > 0 {
			all = append(all, c)
		}
	}
	for _, name := range names {
		if rank(name) < 2 {
			add(curve(name, name, func(x int) []float64 { return rates[key{name, "", x}] }))
			continue
		}
		add(curve(name, name, func(x int) []float64 { return rates[key{name, "", x}] })) // a peer without settings
		add(curve(name, name+", default", func(x int) []float64 { return rates[key{name, "default", x}] }))
		add(curve(name, name+", best setting", func(x int) (top []float64) {
			for _, s := range settings {
				if v := rates[key{name, s, x}]; len(v) > len(top) || len(v) == len(top) && len(v) > 0 && Median(v) > Median(top) {
					top = v
				}
			}
			return top
		}))
	}
	if len(read) > 0 {
		name := "bound by read bandwidth"
		if len(fma) > 0 {
			name += " and FMA peak"
		}
		add(curve(Ours, name, func(x int) []float64 {
			if bytes[x] == 0 {
				return nil
			}
			rate := Median(read) / bytes[x]
			if flops[x] > 0 && len(fma) > 0 {
				rate = min(rate, Median(fma)/flops[x])
			}
			return []float64{rate}
		}))
	}
	return all
}

// rank puts samebit first, with other caches next, and peers last.
func rank(name string) int {
	switch {
	case name == Ours:
		return 0
	case strings.HasPrefix(name, Ours+","):
		return 1
	}
	return 2
}

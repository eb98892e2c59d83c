package bench

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// Ratio is one measurement in two runs, A and B.
type Ratio struct {
	What    string // the measurement, with its numbers
	Unit    string
	A, B    float64  // median rates
	N       [2]int   // repetitions
	Wall    Interval // of the clock
	CPU     Interval // of processor seconds of all threads, which neighbours disturb less; zero where a run took none
	PeakMiB [2]int64
	Inexact bool // either device says so
}

// Interval is how many times faster B is than A: the ratio of the medians, and its
// 95 % percentile bootstrap interval, which is (0, 0) where a run has one repetition.
type Interval struct{ Value, Low, High float64 }

func (i Interval) String() string {
	switch {
	case i.Value == 0:
		return ""
	case i.High == 0:
		return fmt.Sprintf("%.3f", i.Value)
	}
	return fmt.Sprintf("%.3f [%.3f, %.3f]", i.Value, i.Low, i.High)
}

// what names the measurement a result is of, for people and to find its like.
func (r *Result) what() string {
	l := []string{r.Test}
	if r.Model != "" {
		l = []string{r.Model, r.Test}
	}
	if r.Shape != "" {
		l = append(l, r.Shape)
	}
	for _, f := range []struct {
		name string
		n    int
	}{{"n", r.N}, {"depth", r.Depth}, {"seqs", r.Seqs}, {"threads", r.Threads}} {
		if f.n != 0 {
			l = append(l, fmt.Sprintf("%s %d", f.name, f.n))
		}
	}
	return strings.Join(l, " ")
}

// Compare returns the measurements that both runs have, in the order of a, and the
// names of those that one of them lacks. It fails if there is none in both, if one
// comes twice in a run or is none that [ReadRun] takes, or if units differ.
func Compare(a, b *Run) (both []Ratio, onlyA, onlyB []string, err error) {
	index := func(r *Run) (map[string]*Result, error) {
		if len(r.Results) == 0 {
			return nil, errors.New("bench: compare: a run without measurements: write one with samebit bench --json FILE")
		}
		m := map[string]*Result{}
		for i := range r.Results {
			if err := r.Results[i].check(); err != nil {
				return nil, fmt.Errorf("bench: compare: measurement %d: %w", i+1, err)
			}
			w := r.Results[i].what()
			if m[w] != nil {
				return nil, fmt.Errorf("bench: compare: %q comes twice in one run: which one is meant is not known", w)
			}
			m[w] = &r.Results[i]
		}
		return m, nil
	}
	inA, err := index(a)
	if err != nil {
		return nil, nil, nil, err
	}
	inB, err := index(b)
	if err != nil {
		return nil, nil, nil, err
	}
	for i := range a.Results {
		x := &a.Results[i]
		y := inB[x.what()]
		if y == nil {
			onlyA = append(onlyA, x.what())
			continue
		}
		if x.Unit != y.Unit {
			return nil, nil, nil, fmt.Errorf("bench: compare: %q is in %s and in %s", x.what(), x.Unit, y.Unit)
		}
		both = append(both, ratio(x, y))
	}
	for i := range b.Results {
		if w := b.Results[i].what(); inA[w] == nil {
			onlyB = append(onlyB, w)
		}
	}
	if len(both) == 0 {
		return nil, nil, nil, errors.New("bench: compare: the runs have no measurement in common: one has " + onlyA[0] + ", the other " + onlyB[0] +
			": measure both with the same model, threads and lengths")
	}
	return both, onlyA, onlyB, nil
}

func ratio(a, b *Result) Ratio {
	r := Ratio{What: a.what(), Unit: a.Unit, A: a.Median, B: b.Median, N: [2]int{len(a.Wall), len(b.Wall)},
		PeakMiB: [2]int64{a.PeakMiB, b.PeakMiB}, Inexact: a.Inexact != "" || b.Inexact != ""}
	// What a repetition did is the same in both, but for the bytes of a file that was loaded.
	work := b.Median * Median(b.Wall) / (a.Median * Median(a.Wall))
	r.Wall = times(a.Wall, b.Wall, work)
	r.CPU = times(a.CPU, b.CPU, work)
	return r
}

// draws is the number of bootstrap draws.
const draws = 2000

// times returns how many times faster b's seconds are than a's if a repetition of b did
// work times that of a. The draws are the same at every call.
func times(a, b []float64, work float64) Interval {
	if Median(a) == 0 || Median(b) == 0 {
		return Interval{}
	}
	i := Interval{Value: work * Median(a) / Median(b)}
	if len(a) < 2 || len(b) < 2 {
		return i
	}
	r := rand.New(rand.NewPCG(1, uint64(len(a)+len(b))))
	draw := func(v, into []float64) float64 {
		for k := range into {
			into[k] = v[r.IntN(len(v))]
		}
		slices.Sort(into)
		return into[len(into)/2]
	}
	da, db := make([]float64, len(a)), make([]float64, len(b))
	var l []float64
	for range draws {
		if x, y := draw(a, da), draw(b, db); y > 0 {
			l = append(l, work*x/y)
		}
	}
	slices.Sort(l)
	i.Low, i.High = l[len(l)*25/1000], l[len(l)*975/1000]
	return i
}

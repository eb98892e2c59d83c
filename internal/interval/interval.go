// Package interval gives means their bootstrap intervals.
package interval

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat"
)

// Interval is a mean and its 95 % bootstrap interval.
type Interval struct {
	N    int     `json:"n"`
	Mean float64 `json:"mean"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// resamples is the number of bootstrap draws.
const resamples = 2000

// Bootstrap returns the mean of values and the percentile bootstrap interval of
// 95 %: the 2.5 % and 97.5 % quantiles of the means of 2000 resamples with
// replacement. The same seed gives the same interval.
func Bootstrap(values []float64, seed uint64) Interval {
	n := len(values)
	if n == 0 {
		return Interval{}
	}
	r := rand.New(rand.NewPCG(seed, uint64(n)))
	means, draw := make([]float64, resamples), make([]float64, n)
	for i := range means {
		for j := range draw {
			draw[j] = values[r.IntN(n)]
		}
		means[i] = stat.Mean(draw, nil)
	}
	slices.Sort(means)
	return Interval{N: n, Mean: stat.Mean(values, nil), Low: stat.Quantile(0.025, stat.Empirical, means, nil), High: stat.Quantile(0.975, stat.Empirical, means, nil)}
}

// String is the interval in percent, "" for none.
func (i Interval) String() string {
	if i.N == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f [%.0f, %.0f]", 100*i.Mean, 100*i.Low, 100*i.High)
}

package eval

import (
	"math/rand/v2"
	"slices"
	"strings"
	"unicode"

	"gonum.org/v1/gonum/stat"
)

// Normalise folds case, removes everything but letters, digits, underscores and
// spaces, and squeezes spaces: answers that are equal afterwards are equal.
func Normalise(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsLetter(r) || unicode.IsNumber(r) || r == '_':
			return unicode.ToLower(unicode.ToUpper(r)) // ſ and s are one letter
		case unicode.IsSpace(r):
			return ' '
		}
		return -1
	}, s)
	return strings.Join(strings.Fields(s), " ")
}

// Correct reports whether answer equals one of the accepted answers after
// Normalise.
func (c *Case) Correct(answer string) bool {
	a := Normalise(answer)
	return slices.ContainsFunc(c.Answers, func(want string) bool { return Normalise(want) == a })
}

// Contains reports whether answer holds all of c.Parts, or one of the accepted
// answers, as whole words. It forgives a small model its sentences.
func (c *Case) Contains(answer string) bool {
	a := " " + Normalise(answer) + " "
	has := func(want string) bool { return strings.Contains(a, " "+Normalise(want)+" ") }
	if len(c.Parts) > 0 {
		return !slices.ContainsFunc(c.Parts, func(p string) bool { return !has(p) })
	}
	return slices.ContainsFunc(c.Answers, has)
}

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

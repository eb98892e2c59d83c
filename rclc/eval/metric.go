package eval

import (
	"slices"
	"strings"
	"unicode"

	"samebit/internal/interval"
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
type Interval = interval.Interval

// Bootstrap is that of package interval.
func Bootstrap(values []float64, seed uint64) Interval { return interval.Bootstrap(values, seed) }

package qcc

import (
	"regexp"
	"slices"
	"sort"
	"strings"
)

// rare are strings of a question that are worth looking for: UUIDs, numbers of four
// digits and more, identifiers of six characters and more.
var rare = regexp.MustCompile(`[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}|[0-9]{4,}|[A-Za-z_][A-Za-z0-9_]{5,}`)

const (
	anchorHits  = 8  // a string that occurs more often says little
	anchorLeft  = 16 // rows kept before a hit
	anchorRight = 32 // and after it
)

// Anchors lists the rows, rising and at most limit, around what the end of a prompt
// asks for: pieces are the texts of its tokens, question the first of those that ask.
// Strings of the question that occur one to eight times before it are looked for in
// the order in which it names them, their places from the first on.
func Anchors(pieces []string, question, limit int) []int {
	question = min(max(question, 0), len(pieces))
	starts := make([]int, len(pieces)+1) // of each piece in the text
	for i, p := range pieces {
		starts[i+1] = starts[i] + len(p)
	}
	text := strings.Join(pieces, "")
	before, asked := text[:starts[question]], text[starts[question]:]
	row := func(at int) int { return sort.SearchInts(starts, at+1) - 1 }
	taken, seen := map[int]bool{}, map[string]bool{}
	for _, s := range rare.FindAllString(asked, -1) {
		if seen[s] {
			continue
		}
		seen[s] = true
		hits := places(before, s)
		if len(hits) > anchorHits {
			continue
		}
		for _, at := range hits {
			from, to := max(0, row(at)-anchorLeft), min(len(pieces)-1, row(at+len(s)-1)+anchorRight)
			for i := from; i <= to && len(taken) < limit; i++ {
				taken[i] = true
			}
		}
	}
	l := make([]int, 0, len(taken))
	for i := range taken {
		l = append(l, i)
	}
	slices.Sort(l)
	return l
}

// places are where s stands in text as a whole word.
func places(text, s string) []int {
	word := func(b byte) bool {
		return b == '_' || '0' <= b && b <= '9' || 'A' <= b && b <= 'Z' || 'a' <= b && b <= 'z'
	}
	var l []int
	for at := 0; ; {
		i := strings.Index(text[at:], s)
		if i < 0 {
			return l
		}
		i += at
		end := i + len(s)
		if (i == 0 || !word(text[i-1])) && (end == len(text) || !word(text[end])) {
			l = append(l, i)
		}
		at = end
	}
}

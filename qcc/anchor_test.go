package qcc

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// span is [from, to].
func span(from, to int) []int {
	var l []int
	for i := from; i <= to; i++ {
		l = append(l, i)
	}
	return l
}

func TestAnchors(t *testing.T) {
	filler := func(n int) []string { return strings.Split(strings.Repeat("word |", n), "|")[:n] }
	text := func(parts ...[]string) []string { return slices.Concat(parts...) }
	for _, c := range []struct {
		why      string
		pieces   []string
		question int
		limit    int
		want     []int
	}{
		{"a number, in pieces", text(filler(40), []string{"49", "17", " "}, filler(60), []string{"where is 4917?"}), 103, 512, span(24, 73)},
		{"a word that is part of another", text(filler(40), []string{"presetting "}, filler(60), []string{"the setting"}), 101, 512, nil},
		{"short strings", text([]string{"abc 123 "}, filler(9), []string{"abc 123"}), 10, 512, nil},
		{"too frequent", text(slices.Repeat([]string{"needle "}, 9), []string{"needle?"}), 9, 512, nil},
		{"frequent enough, at the edges", text(slices.Repeat([]string{"needle "}, 8), []string{"needle?"}), 8, 512, span(0, 8)},
		{"not there", text(filler(9), []string{"needle_7"}), 9, 512, nil},
		{"the limit", text(filler(40), []string{"needle_7 "}, filler(60), []string{"needle_7"}), 101, 5, span(24, 28)},
		{"a UUID", text([]string{"id 123e4567-e89b-12d3-a456-426614174000 "}, filler(50), []string{"123e4567-e89b-12d3-a456-426614174000"}), 51, 512, span(0, 32)},
		{"no text", nil, 3, 512, nil},
	} {
		got := Anchors(c.pieces, c.question, c.limit)
		if fmt.Sprint(got) != fmt.Sprint(c.want) && len(got)+len(c.want) > 0 {
			t.Errorf("%s: %v, want %v", c.why, got, c.want)
		}
	}
}

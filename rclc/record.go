package rclc

import "strings"

// Kind says what the positions of a Span are.
type Kind string

const (
	KindToken      Kind = "token"
	KindContinuous Kind = "continuous" // a row that is no token
	KindLatent     Kind = "latent"     // of the sender's latent tail
	KindUnknown    Kind = "unknown"    // a sender without ids
)

// Span is a run of positions of equal kind that were all kept, or all left out.
type Span struct {
	Start int    `json:"start"`
	Stop  int    `json:"stop"` // exclusive
	Kept  bool   `json:"kept"`
	Kind  Kind   `json:"kind"`
	Text  string `json:"text,omitempty"` // of token spans, if there is a tokenizer
}

// spansOf cuts positions [0, n) into spans. ids may be nil; the last latent
// positions are the tail; kept rises; tok may be nil.
//
// A span's text is what its tokens add to the text before it, so that the texts of
// adjacent spans join with the right spaces wherever the tokenizer allows.
func spansOf(n, latent int, ids []int32, kept []int, tok Tokenizer) []Span {
	kind := func(p int) Kind {
		switch {
		case p >= n-latent:
			return KindLatent
		case ids == nil:
			return KindUnknown
		case ids[p] < 0:
			return KindContinuous
		}
		return KindToken
	}
	var spans []Span
	for p, next := 0, 0; p < n; p++ {
		in := next < len(kept) && kept[next] == p
		if in {
			next++
		}
		if k := kind(p); p == 0 || spans[len(spans)-1].Kept != in || spans[len(spans)-1].Kind != k {
			spans = append(spans, Span{Start: p, Kept: in, Kind: k})
		}
		spans[len(spans)-1].Stop = p + 1
	}
	if tok == nil {
		return spans
	}
	for i := range spans {
		s := &spans[i]
		if s.Kind != KindToken {
			continue
		}
		s.Text = tok.Text(ids[s.Start:s.Stop])
		if s.Start > 0 && kind(s.Start-1) == KindToken {
			before := tok.Text(ids[s.Start-1 : s.Start])
			if t, ok := strings.CutPrefix(tok.Text(ids[s.Start-1:s.Stop]), before); ok {
				s.Text = t
			}
		}
	}
	return spans
}

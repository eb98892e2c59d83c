package eval

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"

	"samebit/internal/jsonlines"
	"samebit/tensor"
)

// Read reads the results that a run wrote, one JSON object per line. A last line
// that was cut off is left out, so that a run that was killed can go on.
func Read(r io.Reader) ([]Result, error) {
	out, err := jsonlines.Read[Result](r)
	if err != nil {
		return nil, fmt.Errorf("eval: results, %w", err)
	}
	return out, nil
}

// resume takes over the results of an earlier run, of the same things.
func (r *run) resume(cases []Case) error {
	prompt, _, err := r.model.Chat(messages(System), true, "") // stands for the template
	if err != nil {
		return err
	}
	c, info, tok := r.cfg, &r.model.Info, r.tok
	r.id = digest(info.ID[:], info.Tokens[:], tensor.AsBytes(prompt), fmt.Appendf(nil, "%s %v %d %d %s %d %d %d",
		tok.Pre, tok.NFC, tok.Stops, info.Context, c.Placement, c.MaxTokens, c.Span, c.Seed))
	for i := range cases {
		b, err := json.Marshal(cases[i])
		if err != nil {
			return fmt.Errorf("eval: case %d: %w", i, err)
		}
		r.of = append(r.of, digest(b))
	}
	for _, h := range c.Have {
		switch {
		case h.Run != r.id:
			return fmt.Errorf("eval: the earlier results are of an older version, or of another model, tokenizer, chat template, context, placement, answer length, span or seed (%q, here %q): name another file for these", h.Run, r.id)
		case h.Case < 0 || h.Case >= len(cases):
			return fmt.Errorf("eval: the earlier results have case %d, %q, of which there are %d here: name another file for these, or give the same cases", h.Case, h.Question, len(cases))
		case h.Of != r.of[h.Case]:
			return fmt.Errorf("eval: the earlier results have a case %d of other documents, question or answers, %q, here %q: name another file for these, or give the same cases", h.Case, h.Question, cases[h.Case].Question)
		}
		r.have[key{h.Case, h.Method, h.Ratio}] = h
	}
	return nil
}

func digest(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil)[:6])
}

// inside checks spans, which may be a file's, against the documents that they are of.
func inside(spans [][][2]int, ids [][]int32) error {
	if len(spans) != len(ids) {
		return fmt.Errorf("the earlier results keep spans of %d documents out of %d: name another file", len(spans), len(ids))
	}
	for d, kept := range spans {
		end := 0
		for _, s := range kept {
			if s[0] < end || s[1] <= s[0] || s[1] > len(ids[d]) {
				return fmt.Errorf("the earlier results keep positions %d to %d, after %d, of document %d, which has %d: name another file", s[0], s[1], end, d, len(ids[d]))
			}
			end = s[1]
		}
	}
	return nil
}

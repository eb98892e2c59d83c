// Package eval judges selectors: it makes questions whose evidence is known, lets
// selectors choose from the documents of several senders, and counts how much of
// the evidence arrives and how often the receiver answers right.
package eval

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Case is one question over the documents of several senders.
type Case struct {
	Documents []string   `json:"documents"` // one per sender
	Question  string     `json:"question"`
	Answers   []string   `json:"answers"`            // each is right by itself
	Parts     []string   `json:"parts,omitempty"`    // an answer that contains all of these is right in the sense of containment; none: any of Answers
	Begin     string     `json:"begin,omitempty"`    // the first words of the answer, given to the receiver and not judged
	Kind      string     `json:"kind,omitempty"`     // results are reported for each kind
	Evidence  []Evidence `json:"evidence,omitempty"` // where the answer is; none: recall is not counted
}

// Evidence is a half-open range of bytes of a document.
type Evidence struct {
	Document int `json:"document"`
	Start    int `json:"start"`
	Stop     int `json:"stop"`
}

// maxLine bounds one case in a file.
const maxLine = 64 << 20

// ReadCases reads one JSON object per line; blank lines are skipped. An error
// names the line.
func ReadCases(r io.Reader) ([]Case, error) {
	var out []Case
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxLine)
	line := 0
	for s.Scan() {
		line++
		text := bytes.TrimSpace(s.Bytes())
		if len(text) == 0 {
			continue
		}
		var c Case
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		err := d.Decode(&c)
		if err == nil && d.More() {
			err = errors.New("more than one value on the line")
		}
		if err == nil {
			err = c.check()
		}
		if err != nil {
			return nil, fmt.Errorf("eval: line %d: %w", line, err)
		}
		out = append(out, c)
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("eval: line %d: %w", line+1, err)
	}
	if len(out) == 0 {
		return nil, errors.New(`eval: no case: want lines such as {"documents":["…"],"question":"…","answers":["…"]}`)
	}
	return out, nil
}

func (c *Case) check() error {
	if len(c.Documents) == 0 {
		return errors.New(`"documents" is empty: want one text per sender`)
	}
	for i, d := range c.Documents {
		if strings.TrimSpace(d) == "" {
			return fmt.Errorf("document %d is empty", i)
		}
		if !utf8.ValidString(d) {
			return fmt.Errorf("document %d is not UTF-8", i)
		}
	}
	if strings.TrimSpace(c.Question) == "" {
		return errors.New(`"question" is empty`)
	}
	if len(c.Answers) == 0 {
		return errors.New(`"answers" is empty: want at least one accepted answer`)
	}
	for _, a := range append(append([]string(nil), c.Answers...), c.Parts...) {
		if Normalise(a) == "" {
			return fmt.Errorf("answer %q has no letter or digit", a)
		}
	}
	for i, e := range c.Evidence {
		if e.Document < 0 || e.Document >= len(c.Documents) {
			return fmt.Errorf("evidence %d is in document %d of %d", i, e.Document, len(c.Documents))
		}
		if n := len(c.Documents[e.Document]); e.Start < 0 || e.Stop <= e.Start || e.Stop > n {
			return fmt.Errorf("evidence %d is bytes %d to %d of a document of %d", i, e.Start, e.Stop, n)
		}
	}
	return nil
}

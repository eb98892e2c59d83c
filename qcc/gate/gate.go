// Package gate audits evidence for the claims of archive attention: one JSON object
// with measurements, judged by fixed thresholds (docs/qcc.md).
//
// It fails closed. A missing field, a boolean where a number is due, a string, a
// number that is not finite, anything but true where true is due: each is a failure.
// It reads evidence and infers nothing; no file that passes comes with the program.
package gate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
)

// ErrUnreadable is the cause when evidence is no JSON object.
var ErrUnreadable = errors.New("unreadable evidence")

// Result is the verdict. Failures are codes path:rule in a fixed order, empty if and
// only if the evidence passed.
type Result struct {
	Passed   bool     `json:"passed"`
	Failures []string `json:"failures"`
}

// Audit judges evidence. It fails with ErrUnreadable if the text is not one JSON
// object whose keys are unique.
func Audit(evidence []byte) (Result, error) {
	root, err := Read(evidence)
	if err != nil {
		return Result{}, err
	}
	a := &audit{failures: []string{}}
	a.root(section{a, "", root})
	return Result{Passed: len(a.failures) == 0, Failures: a.failures}, nil
}

// Read is one JSON object, read strictly, with numbers as json.Number. It fails with
// ErrUnreadable as Audit does.
func Read(text []byte) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	v, err := value(d, 0)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = errors.New("it ends in the middle of the object")
	}
	if err == nil {
		if _, more := d.Token(); more != io.EOF {
			err = errors.New("text after the object")
		}
	}
	root, ok := v.(map[string]any)
	if err == nil && !ok {
		err = errors.New("it holds something else than an object of measurements: want {\"run_id\": ..., ...}")
	}
	if err != nil {
		return nil, fmt.Errorf("gate: %v: %w", err, ErrUnreadable)
	}
	return root, nil
}

// deepest is how far evidence may nest.
const deepest = 64

// value reads a value as package json does, but refuses a key that comes twice: of
// two readers one would see the other value.
func value(d *json.Decoder, depth int) (any, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	open, ok := t.(json.Delim)
	if !ok {
		return t, nil
	}
	if depth == deepest {
		return nil, fmt.Errorf("it nests deeper than %d", deepest)
	}
	object, list := map[string]any{}, []any{}
	for d.More() {
		if open == '[' {
			v, err := value(d, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
			continue
		}
		k, err := d.Token()
		if err != nil {
			return nil, err
		}
		key, _ := k.(string)
		if _, twice := object[key]; twice {
			return nil, fmt.Errorf("key %q comes twice", key)
		}
		if object[key], err = value(d, depth+1); err != nil {
			return nil, err
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	if open == '[' {
		return list, nil
	}
	return object, nil
}

// audit collects failures.
type audit struct {
	failures   []string
	run, model string // of the root
}

// section is an object of the evidence.
type section struct {
	*audit
	path string
	v    map[string]any
}

func (s section) at(name string) string {
	if s.path == "" || name == "" {
		return s.path + name
	}
	return s.path + "." + name
}

// must records a failure unless ok.
func (s section) must(ok bool, name, rule string) bool {
	if !ok {
		s.failures = append(s.failures, s.at(name)+":"+rule)
	}
	return ok
}

// sub is an object in the section; it must be there.
func (s section) sub(name string) (section, bool) {
	v, ok := s.v[name].(map[string]any)
	return section{s.audit, s.at(name), v}, s.must(ok, name, "missing")
}

// list are the objects of an array; it must be there and hold nothing else.
func (s section) list(name string) ([]section, bool) {
	v, ok := s.v[name].([]any)
	if !s.must(ok && len(v) > 0, name, "missing") {
		return nil, false
	}
	var out []section
	for i, x := range v {
		at := name + "[" + strconv.Itoa(i) + "]"
		o, ok := x.(map[string]any)
		if s.must(ok, at, "object") {
			out = append(out, section{s.audit, s.at(at), o})
		}
	}
	return out, len(out) == len(v)
}

// number is a finite number; NaN, which no comparison takes for good, if it is none.
func (s section) number(name string) float64 {
	if n, ok := s.v[name].(json.Number); ok {
		if x, err := strconv.ParseFloat(string(n), 64); err == nil && !math.IsInf(x, 0) {
			return x
		}
	}
	s.must(false, name, "number")
	return math.NaN()
}

// is applies a rule to a number that is there.
func (s section) is(name, rule string, good func(x float64) bool) float64 {
	x := s.number(name)
	if x == x {
		s.must(good(x), name, rule)
	}
	return x
}

func (s section) atLeast(name string, least float64) float64 {
	return s.is(name, "min", func(x float64) bool { return x >= least })
}

func (s section) positive(name string) float64 {
	return s.is(name, "positive", func(x float64) bool { return x > 0 })
}

// rate is a number from 0 to 1 with a least value.
func (s section) rate(name string, least float64) float64 {
	x := s.number(name)
	if x == x && s.must(x >= 0 && x <= 1, name, "range") {
		s.must(x >= least, name, "min")
	}
	return x
}

func (s section) text(name string) string {
	t, ok := s.v[name].(string)
	s.must(ok && t != "", name, "string")
	return t
}

func (s section) boolean(name string, want bool) {
	b, ok := s.v[name].(bool)
	s.must(ok && b == want, name, strconv.FormatBool(want))
}

// sha256 is 64 lower-case hexadecimal digits.
func (s section) sha256(name string) {
	t, _ := s.v[name].(string)
	good := len(t) == 64
	for i := range len(t) {
		good = good && (t[i] >= '0' && t[i] <= '9' || t[i] >= 'a' && t[i] <= 'f')
	}
	s.must(good, name, "sha256")
}

// ratio is a/b with a least value, if b is positive and both are there.
func (s section) ratio(a, b float64, name, rule string, least float64) {
	if b > 0 && a == a {
		s.must(a/b >= least, name, rule)
	}
}

// identity is what ties a section to the run.
func (s section) identity() {
	s.must(s.v["model_id"] == any(s.model) && s.model != "", "model_id", "match")
	s.must(s.v["run_id"] == any(s.run) && s.run != "", "run_id", "match")
}

// measured is what every section but calibration has in common.
func (s section) measured(official, matched bool) {
	s.identity()
	s.boolean("real_model", true)
	s.boolean("synthetic", false)
	s.boolean("qcc_only", false)
	if matched {
		s.boolean("matched_full_kv", true)
	}
	if official {
		s.boolean("official", true)
	} else {
		s.boolean("protocol_locked", true)
	}
}

// contexts are those of a workload, and of the model.
func (s section) contexts(least float64) {
	n := s.atLeast("context_tokens", least)
	native := s.number("native_context_tokens")
	if n == n && native == native {
		s.must(native >= n, "native_context_tokens", "min")
	}
}

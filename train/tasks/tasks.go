// Package tasks generates text whose answers stand in the context: facts told in
// many phrasings and asked later, several documents with distractors, keys and
// values, tables, short arithmetic on stated numbers, chats with system, user and
// tool turns. It is what small models learn to look things up from, and what they
// are judged by.
//
// Everything follows from a seed and an index, so that any sample can be made
// again by itself. Names of things that are asked about come in two halves that
// share no name: one for training, one for judging (Config.HeldOut).
package tasks

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// Kind is a kind of task.
type Kind string

// The kinds. Recall is what the first four ask for.
const (
	Facts      Kind = "facts"      // sentences about several things
	Documents  Kind = "documents"  // titled documents, most of them distractors
	KeyValue   Kind = "keyvalue"   // lines of keys and values
	Table      Kind = "table"      // rows and named columns
	Arithmetic Kind = "arithmetic" // sums and differences of stated numbers
	Copy       Kind = "copy"       // the same again: an exercise to begin with
	Pairs      Kind = "pairs"      // names and numbers beside each other: from Copy to KeyValue
	Backward   Kind = "backward"   // facts whose sentences tell the value before the thing
)

// Kinds are all kinds but the exercises, in the order of reports.
var Kinds = []Kind{Facts, Documents, KeyValue, Table, Arithmetic}

// exercises are for training alone.
var exercises = []Kind{Copy, Pairs, Backward}

// Format is how context, questions and answers are written down.
type Format string

// The formats.
const (
	Plain Format = "plain" // context, then lines "Q: …" and "A: …"
	Chat  Format = "chat"  // turns of a conversation (ChatML), context in the user's turn
	Tool  Format = "tool"  // as Chat, context in a tool's turn
)

// Formats are all formats.
var Formats = []Format{Plain, Chat, Tool}

// Style is how much an answer says.
type Style string

// The styles. What a sentence repeats of the question, a model finds next to the
// place where the value goes; it learns to look up in stages, from one style to the next.
const (
	Sentence Style = ""      // "The code of mill Doras is 1930."
	Thing    Style = "thing" // "mill Doras: 1930"
	Value    Style = "value" // "1930"
)

// Part is a piece of a sample's text.
type Part struct {
	Text   string
	Answer bool // what the model is to say
}

// Sample is a text with questions and their answers.
type Sample struct {
	Kind   Kind
	Format Format
	Parts  []Part
}

// Text is the whole text.
func (s Sample) Text() string {
	var b strings.Builder
	for _, p := range s.Parts {
		b.WriteString(p.Text)
	}
	return b.String()
}

// Ask returns the text up to the i-th answer, counted from 0, and what the answer
// is without what ends it; ok is false if there is no such answer.
func (s Sample) Ask(i int) (prompt, answer string, ok bool) {
	var b strings.Builder
	for _, p := range s.Parts {
		if !p.Answer {
			b.WriteString(p.Text)
			continue
		}
		answer = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(p.Text), turnEnd))
		if i == 0 {
			return b.String(), answer, true
		}
		i--
		b.WriteString(p.Text)
	}
	return "", "", false
}

// Config says which samples are made. The zero value makes all kinds and formats.
type Config struct {
	Seed      uint64
	Kinds     []Kind   // nil means Kinds
	Formats   []Format // nil means all
	Bytes     int      // size of the context that is aimed at; 0 means 600
	Questions int      // per sample; 0 means 1
	HeldOut   bool     // only names that training never sees
	Style     Style    // of answers
}

// Check reports what is wrong with the configuration.
func (c Config) Check() error {
	for _, k := range c.Kinds {
		if !slices.Contains(Kinds, k) && !slices.Contains(exercises, k) {
			return fmt.Errorf("tasks: no kind %q: there are %v and %v", k, Kinds, exercises)
		}
	}
	for _, f := range c.Formats {
		if !slices.Contains(Formats, f) {
			return fmt.Errorf("tasks: no format %q: there are %v", f, Formats)
		}
	}
	if c.Style != Sentence && c.Style != Thing && c.Style != Value {
		return fmt.Errorf("tasks: no style %q of answers: there are %s and %s, and sentences without one", c.Style, Thing, Value)
	}
	if c.Bytes < 0 || c.Questions < 0 {
		return fmt.Errorf("tasks: %d bytes and %d questions: neither may be negative", c.Bytes, c.Questions)
	}
	return nil
}

// Make makes sample number index of a valid configuration.
func Make(c Config, index uint64) Sample {
	r := rand.New(rand.NewPCG(c.Seed, index))
	kind := pick(r, or(c.Kinds, Kinds))
	format := pick(r, or(c.Formats, Formats))
	bytes, questions := c.Bytes, c.Questions
	if bytes == 0 {
		bytes = 600
	}
	if questions == 0 {
		questions = 1
	}
	w := &world{r: r, heldOut: c.HeldOut, used: map[string]bool{}, backward: kind == Backward}
	var context string
	var asked []question
	switch kind {
	case Facts, Backward:
		context, asked = w.facts(bytes, questions)
	case Documents:
		context, asked = w.documents(bytes, questions)
	case KeyValue:
		context, asked = w.keyValue(bytes, questions)
	case Table:
		context, asked = w.table(bytes, questions)
	case Arithmetic:
		context, asked = w.arithmetic(bytes, questions)
	case Copy:
		context, asked = w.again(bytes, questions)
	case Pairs:
		context, asked = w.pairs(bytes, questions)
	}
	s := Sample{Kind: kind, Format: format}
	for i := range asked {
		q := &asked[i]
		if q.worked != "" && c.Style != Value {
			q.answer = q.worked
		}
		if c.Style != Sentence {
			q.of = ""
		}
		if c.Style == Value {
			q.thing = ""
		}
	}
	s.Parts = render(r, format, context, asked)
	return s
}

// question is one question with its answer.
type question struct {
	ask, answer string
	of, thing   string // what the answer is, and of what
	worked      string // the answer with the numbers' owners; empty if thing says it
}

func or[T any](given, all []T) []T {
	if len(given) == 0 {
		return all
	}
	return given
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

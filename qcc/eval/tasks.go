package eval

import (
	"fmt"
	"slices"
	"strings"

	"samebit/token"
	"samebit/train/tasks"
)

// Task is a kind of question. The ones of package train/tasks, keyvalue, facts,
// documents and table, have the form that the models in the program know; the others
// are worded for the model ([Wording]).
type Task string

// The tasks after MQAR and RULER.
const (
	Recall    Task = "recall"    // so many pairs of names and numbers, any of them asked for
	Single    Task = "single"    // one such pair among other sentences
	MultiKey  Task = "multikey"  // four pairs with like names, any of them asked for
	Variables Task = "variables" // the last of three assignments, followed to the number at their end
	Words     Task = "words"     // the word that occurs most
)

// Text is not a task: the name of held-out text in results.
const Text Task = "text"

// Forms are the tasks that only models in the program know, Worded those for all.
var (
	Forms  = []Task{Task(tasks.KeyValue), Task(tasks.Facts), Task(tasks.Documents), Task(tasks.Table)}
	Worded = []Task{Recall, Single, MultiKey, Variables, Words}
)

// Tasks are those that a model of a wording is asked.
func Tasks(w Wording) []Task {
	if w == English {
		return Worded
	}
	return append(slices.Clone(Forms), Worded...)
}

// question is what follows a context: the answer is right if every token of it but
// the given ones is the model's first choice.
type question struct {
	ask, answer []int32
	given       []bool // tokens of the answer that the model is told
}

// item is a context with questions about it.
type item struct {
	context   []int32
	questions []question
}

// makeItem makes an item of about so many tokens; pairs count in recall.
func makeItem(tok *token.Tokenizer, w Wording, c cell, questions int, seed, index uint64) (item, error) {
	if slices.Contains(Forms, c.task) {
		return formed(tok, tasks.Kind(c.task), c.length, questions, seed, index)
	}
	return wordings[w].item(tok, c, questions, seed, index)
}

// formed is a sample of train/tasks with names that no training has seen.
func formed(tok *token.Tokenizer, kind tasks.Kind, length, questions int, seed, index uint64) (item, error) {
	begin := tok.ID("<|endoftext|>")
	if begin < 0 {
		return item{}, fmt.Errorf("eval: the vocabulary has no token <|endoftext|>: ask this model those of other wording: %v", Worded)
	}
	for bytes := 3 * length; ; bytes = bytes * 9 / 10 {
		s := tasks.Make(tasks.Config{Seed: seed, Kinds: []tasks.Kind{kind}, Formats: []tasks.Format{tasks.Plain}, Bytes: bytes, Questions: questions, HeldOut: true}, index)
		context := s.Parts[0].Text
		at := strings.LastIndex(context, "Q: ")
		var asked []dialogue
		for i := 0; i+1 < len(s.Parts); i += 2 {
			asked = append(asked, dialogue{s.Parts[i].Text, s.Parts[i+1].Text})
		}
		asked[0][0] = context[at:]
		it := join(tok, []int32{begin}, context[:at], asked)
		if len(it.context) <= length || bytes < 64 {
			return it, nil
		}
	}
}

// dialogue is what is asked, what is to be answered, and so on in turn.
type dialogue []string

// join cuts what all questions have in common off their tokens, so that tokens that
// cross the border stay whole.
func join(tok *token.Tokenizer, begin []int32, context string, asked []dialogue) item {
	var it item
	whole := make([][]int32, len(asked))
	for i, d := range asked {
		whole[i] = tok.Encode(slices.Clone(begin), context+d[0])
		var q question
		for j, part := range d[1:] {
			ids := tok.Encode(nil, part)
			q.answer = append(q.answer, ids...)
			q.given = append(q.given, slices.Repeat([]bool{j%2 == 1}, len(ids))...)
		}
		it.questions = append(it.questions, q)
	}
	n := len(tok.Encode(slices.Clone(begin), context)) - 1
	for _, w := range whole {
		for n > len(w)-2 || !slices.Equal(w[:n], whole[0][:n]) {
			n--
		}
	}
	it.context = whole[0][:n]
	for i, w := range whole {
		it.questions[i].ask = w[n:]
	}
	return it
}

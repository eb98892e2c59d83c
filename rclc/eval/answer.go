package eval

import (
	"context"
	"fmt"
	"strings"

	"samebit/nn"
	"samebit/rclc"
	"samebit/sample"
	"samebit/state"
	"samebit/token"
	"samebit/token/jinja"
)

// Placement says where the receiver's prompt has the received rows.
type Placement string

const (
	BeforePrompt Placement = "before" // before everything else, the default of transfers
	InTurn       Placement = "turn"   // inside the user's turn, between the words Evidence and Question
)

// Placements lists them.
var Placements = []Placement{BeforePrompt, InTurn}

// System is the instruction that every receiver gets.
const System = "Answer the question with only the short answer, using the evidence you were given."

// marker stands in a prompt where the rows go.
const marker = "\uFDD0rows\uFDD1"

// receiver answers questions greedily, many at once.
type receiver struct {
	model   *rclc.Model
	tok     *token.Tokenizer
	batch   *nn.Batcher
	longest int // answer
}

// around returns the rows before and after the received ones.
func (r *receiver) around(c *Case, p Placement) (before, after []state.Row, err error) {
	user, cut := c.Question, ""
	if p == InTurn {
		user, cut = "Evidence:\n"+marker+"\nQuestion: "+c.Question, marker
	}
	a, b, err := r.model.Chat(messages(user), true, cut)
	if err != nil {
		return nil, nil, err
	}
	if p == BeforePrompt {
		a, b = nil, a
	}
	return state.Tokens(a), state.Tokens(b, r.tok.EncodePlain(nil, c.Begin)), nil
}

// text returns the rows of a prompt that has the evidence as text.
func (r *receiver) text(evidence string, c *Case) ([]state.Row, error) {
	user := c.Question
	if evidence != "" {
		user = "Evidence:\n" + evidence + "\nQuestion: " + c.Question
	}
	ids, _, err := r.model.Chat(messages(user), true, "")
	return state.Tokens(ids, r.tok.EncodePlain(nil, c.Begin)), err
}

// summary returns the rows by which a sender is asked for what another needs.
func (r *receiver) summary(document string, c *Case) ([]state.Row, error) {
	ids, _, err := r.model.Chat([]jinja.Message{
		{Role: "system", Content: "Copy from the text what helps to answer the question. Write nothing else."},
		{Role: "user", Content: "Text:\n" + document + "\nQuestion: " + c.Question},
	}, true, "")
	return state.Tokens(ids), err
}

func messages(user string) []jinja.Message {
	return []jinja.Message{{Role: "system", Content: System}, {Role: "user", Content: user}}
}

// answer runs rows in a fresh sequence and returns the greedy continuation up to a
// line's end, the end of the reply or the longest answer.
func (r *receiver) answer(ctx context.Context, in []state.Row) (string, error) {
	ids, err := r.generate(ctx, in, r.longest, "\n")
	if err != nil {
		return "", err
	}
	text, _, _ := strings.Cut(strings.TrimLeft(r.tok.TextSkip(ids), " \n"), "\n")
	return strings.TrimSpace(text), nil
}

// generate continues rows greedily with at most n tokens; it ends early at the end
// of the reply, and after some text at stop, if that is not empty.
func (r *receiver) generate(ctx context.Context, in []state.Row, n int, stop string) ([]int32, error) {
	run, err := r.model.Decoder().NewRunner(nil, r.model.Pool(), nn.RunnerConfig{Batcher: r.batch})
	if err != nil {
		return nil, err
	}
	defer run.Close()
	if err := run.Append(ctx, in); err != nil {
		return nil, err
	}
	draw, err := sample.New(sample.Config{}, r.tok.Size())
	if err != nil {
		return nil, err
	}
	var ids []int32
	var text strings.Builder
	for i := range n {
		id, err := draw.Next(run.Logits(), nil, 0, uint64(i))
		if err != nil {
			return nil, fmt.Errorf("eval: token %d of an answer: %w", i, err)
		}
		if r.tok.IsStop(id) {
			break
		}
		ids = append(ids, id)
		text.Write(r.tok.TokenBytes(id))
		if stop != "" && strings.Contains(strings.TrimLeft(text.String(), " \n"), stop) {
			break
		}
		if c := r.model.Info.Context; i+1 == n || c > 0 && run.Len() == c {
			break
		}
		if err := run.Step(ctx, id); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

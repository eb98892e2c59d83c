package rclc

import (
	"slices"

	"samebit/state"
	"samebit/token/jinja"
)

// Placement says where received rows stand in a receiver's prompt. The zero value
// puts them before everything, system prompt included.
type Placement struct {
	// InTurn puts them inside the user's turn, before the request, between the texts
	// Before and After.
	InTurn        bool
	Before, After string
}

// check refuses texts that would not be used.
func (p Placement) check() error {
	if !p.InTurn && p.Before+p.After != "" {
		return fail(ErrOption, "placement", "texts around received rows that stand before the prompt: set InTurn, or leave them out")
	}
	return nil
}

// Plan is a receiver's prompt for one request and the room that it leaves.
type Plan struct {
	Prompt    []int32 // ids of the prompt without the received rows
	At        int     // how many of them come before the received rows
	Allowance int     // positions kept free for the answer
	Limit     int     // positions in all; 0 for no limit
}

// Available is the number of positions left for received rows; it may be negative.
// Without a limit it is 2³¹-1.
func (p Plan) Available() int {
	if p.Limit == 0 {
		return noLimit
	}
	return p.Limit - len(p.Prompt) - p.Allowance
}

// NewPlan is the plan of a receiver with a history. A text is rendered as the user's
// next turn, up to where the assistant's begins; ids are a whole prompt by
// themselves, so they need an empty history and rows placed before them. allowance
// 0 means 1, limit 0 the model's context.
func (m *Model) NewPlan(history []jinja.Message, r Request, where Placement, allowance, limit int) (Plan, error) {
	if allowance < 0 || limit < 0 {
		return Plan{}, fail(ErrOption, "plan", "an allowance of %d positions and a limit of %d: want neither negative", allowance, limit)
	}
	if c := m.Info.Context; limit == 0 {
		limit = c
	} else if c > 0 && limit > c {
		return Plan{}, fail(ErrOption, "plan", "a limit of %d positions, more than the model's context of %d: ask for at most that, or 0", limit, c)
	}
	if err := where.check(); err != nil {
		return Plan{}, err
	}
	p := Plan{Allowance: max(allowance, 1), Limit: limit}
	if _, err := r.ids(m); err != nil {
		return Plan{}, err
	}
	if r.IDs != nil {
		switch {
		case len(history) > 0:
			return Plan{}, fail(ErrRequest, "request_history", "a request of ids for a receiver with a history of %d messages, where its framing is not known: give text, or use a receiver without history", len(history))
		case where.InTurn:
			return Plan{}, fail(ErrRequest, "request_placement", "a request of ids has no user's turn to place rows in: give text, or place them before the prompt")
		}
		p.Prompt = slices.Clone(r.IDs)
		return p, nil
	}
	if m.Chat == nil {
		return Plan{}, fail(ErrRequest, "chat_template", "a text request needs the model's chat template: give one, or ids")
	}
	said, cut := r.Text, ""
	if where.InTurn {
		cut = unsaid("\uFDD4", "\uFDD5", append(textsOf(history), where.Before, where.After, r.Text)...)
		said = where.Before + cut + where.After + r.Text
	}
	before, after, err := m.Chat(append(slices.Clone(history), jinja.Message{Role: "user", Content: said}), true, cut)
	if err != nil {
		return Plan{}, err
	}
	if where.InTurn {
		p.At = len(before)
	}
	p.Prompt = append(before, after...)
	return p, nil
}

// Assemble returns the rows of a delivery inside its prompt, all for positions from
// 0 on, and how many of the first of them are to count as inherited: those up to the
// end of the received ones.
func (p Plan) Assemble(m *Model, d Delivery) (rows []state.Row, inherited int, err error) {
	if err := p.check(m); err != nil {
		return nil, 0, err
	}
	n := d.Positions()
	if n > p.Available() {
		return nil, 0, fail(ErrReceiverFull, "receiver_no_space", "%d received rows, a prompt of %d and an allowance of %d exceed the limit of %d by %d: shorten the prompt, allow fewer tokens or send less",
			n, len(p.Prompt), p.Allowance, p.Limit, n+len(p.Prompt)+p.Allowance-p.Limit)
	}
	rows = append(rows, state.Tokens(p.Prompt[:p.At])...)
	for i, msg := range d.Messages {
		r, err := msg.Rows(m)
		if err != nil {
			return nil, 0, fail(ErrMessage, Code(err), "message %d: %w", i, err)
		}
		rows = append(rows, r...)
	}
	inherited = len(rows)
	return append(rows, state.Tokens(p.Prompt[p.At:])...), inherited, nil
}

// check refuses a plan that no receiver of the model could follow.
func (p Plan) check(m *Model) error {
	if p.At < 0 || p.At > len(p.Prompt) {
		return fail(ErrOption, "plan", "received rows at %d of a prompt of %d", p.At, len(p.Prompt))
	}
	if p.Allowance < 0 || p.Limit < 0 {
		return fail(ErrOption, "plan", "an allowance of %d positions and a limit of %d: want neither negative", p.Allowance, p.Limit)
	}
	for i, id := range p.Prompt {
		if id < 0 || int(id) >= m.Info.Vocab {
			return fail(ErrOption, "vocab_range", "id %d of the prompt is %d, outside the vocabulary of %d", i, id, m.Info.Vocab)
		}
	}
	return nil
}

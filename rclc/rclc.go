// Package rclc hands the parts of an agent's context that another agent asks for
// to that agent, without generating text.
//
// A receiver states what it needs as a request. A selector scores the positions of
// a sender by the model's own attention to the request, the best spans travel as
// input rows, and the receiver runs them, followed by its own prompt, in one
// prefill. Rows travel, not keys and values: the receiver's state depends on the
// kept rows alone, at its own dense positions, and any model can take part, also a
// recurrent one.
//
// A [Sender] is an immutable value: rows, and the snapshot that they left. Scores
// are computed on a private sequence that shares its pages, so a transfer never
// changes a sender, and equal inputs give equal bits, whatever else runs, on every
// device (docs/numerics.md 7).
package rclc

import (
	"context"
	"strings"
)

// Request is what a receiver asks for: text, or token ids. Text is encoded by each
// sender's own tokenizer, as plain text and without a chat template; ids must lie
// in every sender's vocabulary.
type Request struct {
	Text string  `json:"text,omitempty"`
	IDs  []int32 `json:"ids,omitempty"` // used when Text is empty
}

// String is the text, or says that there are only ids.
func (r Request) String() string {
	if r.IDs != nil {
		return "(request of token ids)"
	}
	return r.Text
}

// ids encodes the request for a model.
func (r Request) ids(m *Model) ([]int32, error) {
	switch {
	case r.IDs != nil && r.Text != "":
		return nil, fail(ErrRequest, "request", "the request has both text and %d ids: give one of them", len(r.IDs))
	case r.IDs != nil:
		if len(r.IDs) == 0 {
			return nil, fail(ErrRequest, "request_empty", "the request has no ids: give at least one")
		}
		return r.IDs, m.checkIDs(r.IDs)
	case strings.TrimSpace(r.Text) == "":
		return nil, fail(ErrRequest, "request_empty", "the request is empty: give text with something to read, or ids")
	case m.Tokenizer == nil:
		return nil, fail(ErrRequest, "request_tokenizer", "the request is text and the model has no tokenizer: give ids")
	}
	ids := m.Tokenizer.EncodePlain(nil, r.Text)
	if len(ids) == 0 {
		return nil, fail(ErrRequest, "request_empty", "the request %q has no tokens: give text with something to read", r.Text)
	}
	return ids, nil
}

// Form is how the rows of a message travel.
type Form uint8

const (
	Embeddings Form = iota // every row as a vector
	TokenIDs               // ids, and vectors only for continuous rows; the same bits for the receiver
)

func (f Form) String() string {
	if f == TokenIDs {
		return "token_ids+continuous"
	}
	return "embeddings"
}

// Delivery is what a receiver gets: one message of each sender, in their order.
// Payload memory is shared between receivers; nobody writes to it.
type Delivery struct {
	Request  Request
	Messages []Message
}

// Positions is the number of rows of all messages.
func (d Delivery) Positions() int {
	n := 0
	for _, m := range d.Messages {
		n += m.Positions()
	}
	return n
}

// Bytes is the payload of all messages.
func (d Delivery) Bytes() int {
	n := 0
	for _, m := range d.Messages {
		n += m.Bytes()
	}
	return n
}

// Source is who has something to send: a [*Sender], or an agent.
type Source interface {
	// Sender returns what there is to send now, which may run a prefill. It stays
	// what it is when the source moves on; the caller releases it.
	Sender(ctx context.Context) (*Sender, error)
}

// Receiver takes deliveries.
type Receiver interface {
	Deliver(ctx context.Context, d Delivery) error
}

// ReceiverFunc is a function as a receiver.
type ReceiverFunc func(ctx context.Context, d Delivery) error

func (f ReceiverFunc) Deliver(ctx context.Context, d Delivery) error { return f(ctx, d) }

// Planner is a receiver that knows how much room it has. [Transfer] asks it for a
// plan of every request before anything is selected, fits the budgets to the
// tightest plan, and calls Enqueue in the place of Deliver.
type Planner interface {
	Receiver
	// Model is what the received rows will run on; senders must match it.
	Model() *Model
	// Plan renders the prompt of a request. It changes nothing.
	Plan(ctx context.Context, r Request, where Placement) (Plan, error)
	// Enqueue keeps a delivery with the plan that it was fitted to.
	Enqueue(d Delivery, p Plan) error
}

// Selector chooses which positions of a sender travel.
type Selector interface {
	// Select returns at least one and at most budget different positions in
	// [0, s.Len()), in any order. request has at least one id, 1 <= budget <=
	// s.Len(). It must not keep or change anything of s. Calls for senders of one
	// model come one after the other.
	Select(ctx context.Context, s *Sender, request []int32, budget int) ([]int, error)
}

// SelectorFunc is a function as a selector.
type SelectorFunc func(ctx context.Context, s *Sender, request []int32, budget int) ([]int, error)

func (f SelectorFunc) Select(ctx context.Context, s *Sender, request []int32, budget int) ([]int, error) {
	return f(ctx, s, request, budget)
}

// Floorer is a selector that cannot work with fewer positions than Floor says; the
// built-in ones keep row 0 and the latent tail. Others have a floor of 1.
type Floorer interface{ Floor(s *Sender) int }

// Scorer is a selector that can tell the score of each position. The built-in
// selectors are.
type Scorer interface {
	Scores(ctx context.Context, s *Sender, request []int32) ([]float32, error)
}

// Namer is a selector that records and receipts can name; the built-in ones are
// called by their name and options, such as "cacheback span=16".
type Namer interface{ Name() string }

// Reasoner adds continuous rows to a sender before or after selection (rollout).
type Reasoner interface {
	// Reason returns s with at most limit continuous rows more, by which also its
	// latent tail grows. request is nil unless the context includes it; it must
	// leave no trace. With nothing to add it returns s retained; the caller releases
	// the result in any case, and s stays what it is.
	Reason(ctx context.Context, s *Sender, limit int, request []int32) (*Sender, error)
}

// ReasonerFunc is a function as a reasoner. What it returns is checked against s,
// row by row and bit by bit.
type ReasonerFunc func(ctx context.Context, s *Sender, limit int, request []int32) (*Sender, error)

func (f ReasonerFunc) Reason(ctx context.Context, s *Sender, limit int, request []int32) (*Sender, error) {
	return f(ctx, s, limit, request)
}

// ReasonContext says what reasoning sees, and when it runs.
type ReasonContext uint8

const (
	Full                ReasonContext = iota // the whole sender, once per sender, before selection
	FullWithRequest                          // the whole sender and a request, before its selection
	Selected                                 // the selected rows, run anew at positions 0, 1, …, after selection
	SelectedWithRequest                      // the selected rows and the request
)

func (c ReasonContext) String() string {
	switch c {
	case FullWithRequest:
		return "full_with_request"
	case Selected:
		return "selected"
	case SelectedWithRequest:
		return "selected_with_request"
	}
	return "full"
}

// after reports whether reasoning runs on what was selected.
func (c ReasonContext) after() bool { return c == Selected || c == SelectedWithRequest }

// sees reports whether reasoning is given the request.
func (c ReasonContext) sees() bool { return c == FullWithRequest || c == SelectedWithRequest }

// Config steers a transfer. The zero value sends a quarter of each sender's own
// positions, chosen by [CacheBack], as vectors placed before the prompt.
type Config struct {
	// Ratio sends one in so many positions beyond the inherited ones, which count in
	// full: I + ⌈(T-I)/Ratio⌉. 0 means 4, unless Budget is set. Only one of the two.
	Ratio int
	// Budget is the largest number of positions of a message; 0 for none.
	Budget int

	Selector  Selector // nil means CacheBack{}
	Form      Form
	Placement Placement // of the received rows in the receivers' prompts

	// Reason, if set, adds rows; ReasonBudget limits them. In the two selected
	// contexts that many positions are set aside for them, so it must be given; in
	// the full ones 0 means no limit but the model's context.
	Reason        Reasoner
	ReasonContext ReasonContext
	ReasonBudget  int

	// Record keeps with each message what was selected, for views and receipts. It
	// changes neither payload nor bytes.
	Record bool
	// Parallel is how many senders are worked on at once; 0 means one per worker of
	// their device. It changes time and memory, never a bit.
	Parallel int
}

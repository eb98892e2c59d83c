package rclc

import (
	"io"
	"iter"
	"slices"
)

// Report is what Inspect says about an agent.
type Report struct {
	Device            string           `json:"backend"`
	StateSource       string           `json:"state_source"` // "retained", "messages", or "none"
	CachedPositions   int              `json:"cached_positions"`
	PendingGeneration bool             `json:"pending_generation"`
	QueuedRequests    int              `json:"queued_requests"`
	Deliveries        []DeliveryReport `json:"deliveries"`
}

// DeliveryReport is one delivery of the queue, the oldest first.
type DeliveryReport struct {
	Senders   int   `json:"senders"`
	Retained  []int `json:"retained_positions"` // of each message
	Bytes     int   `json:"payload_bytes"`
	Prompt    int   `json:"prompt_positions"`
	Reserved  int   `json:"reserved_output_positions"`
	Remaining int   `json:"remaining_positions"` // negative: it will not fit
	// Selections are the records of the messages, null where none was kept; left out
	// unless they were asked for.
	Selections []*Selection `json:"selections,omitempty"`
}

// Inspect reports what the agent holds. It runs nothing, takes nothing, does not
// wait for the operation that runs, and shares no memory with the agent.
func (a *Agent) Inspect(withSelections bool) Report {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := Report{
		Device: a.model.Pool().Device().Name(), StateSource: "none",
		PendingGeneration: a.pending != nil, QueuedRequests: len(a.queue), Deliveries: []DeliveryReport{},
	}
	switch {
	case a.own != nil:
		r.StateSource, r.CachedPositions = "retained", a.own.Len()
	case a.history != nil:
		r.StateSource = "messages"
		if a.seen != nil {
			r.CachedPositions = a.seen.Len()
		}
	}
	for _, q := range a.queue {
		d := DeliveryReport{
			Senders: len(q.Messages), Bytes: q.Bytes(), Prompt: len(q.plan.Prompt), Reserved: q.plan.Allowance,
			Remaining: q.plan.Available() - q.Positions(),
		}
		for _, m := range q.Messages {
			d.Retained = append(d.Retained, m.Positions())
			if withSelections {
				d.Selections = append(d.Selections, m.Selection().clone())
			}
		}
		r.Deliveries = append(r.Deliveries, d)
	}
	return r
}

// clone is a copy that shares nothing.
func (s *Selection) clone() *Selection {
	if s == nil {
		return nil
	}
	c := *s
	c.Indices, c.Spans, c.Request = slices.Clone(s.Indices), slices.Clone(s.Spans), slices.Clone(s.Request)
	return &c
}

// Queue yields the deliveries, the oldest first, without taking them. It ends early
// when the queue changes.
func (a *Agent) Queue() iter.Seq2[int, Delivery] {
	return func(yield func(int, Delivery) bool) {
		a.mu.Lock()
		changes := a.changes
		a.mu.Unlock()
		for i := 0; ; i++ {
			a.mu.Lock()
			if a.changes != changes || i >= len(a.queue) {
				a.mu.Unlock()
				return
			}
			d := a.queue[i].Delivery
			a.mu.Unlock()
			d.Messages, d.Request.IDs = slices.Clone(d.Messages), slices.Clone(d.Request.IDs)
			if !yield(i, d) {
				return
			}
		}
	}
}

// SelectionHTML writes the view of the selections of delivery i of the queue; see
// [Delivery.WriteHTML].
func (a *Agent) SelectionHTML(w io.Writer, i int) error {
	a.mu.Lock()
	n := len(a.queue)
	if i < 0 || i >= n {
		a.mu.Unlock()
		return fail(ErrOption, "queue_index", "delivery %d of %d: want a place in the queue, counted from 0", i, n)
	}
	d := a.queue[i].Delivery
	a.mu.Unlock()
	return d.WriteHTML(w)
}

// WriteHTML writes one self-contained page, without scripts and loading nothing,
// that shows each sender's text and what of it was kept. Every message must have
// been recorded; see [Config.Record].
func (d Delivery) WriteHTML(w io.Writer) error {
	records := make([]*Selection, len(d.Messages))
	for i, m := range d.Messages {
		if records[i] = m.Selection(); records[i] == nil {
			return fail(ErrOption, "not_recorded", "the selection of message %d of %d was not recorded: transfer with Config.Record", i, len(d.Messages))
		}
	}
	return page(w, d.Request, records)
}

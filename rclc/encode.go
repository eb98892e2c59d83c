package rclc

import "samebit/state"

// Message is what one sender hands over: chosen rows in the order of their
// positions. It is immutable, and shared by all who receive it.
type Message struct {
	width int       // of a row
	rows  []float32 // continuous rows [c, width]
	ids   []int32   // by position, -1 for a continuous row; nil: all rows are continuous

	selection *Selection // nil if not recorded
	from      *Info      // the model that it was made with; nil if that is not known
}

// Positions is the number of rows.
func (m Message) Positions() int {
	if m.ids != nil {
		return len(m.ids)
	}
	if m.width == 0 {
		return 0
	}
	return len(m.rows) / m.width
}

// Width is the number of values in a row.
func (m Message) Width() int { return m.width }

// Bytes is the size of the payload: 4 per value of a continuous row, 8 per id.
// Framing and the record of the selection do not count.
func (m Message) Bytes() int { return 4*len(m.rows) + 8*len(m.ids) }

// Form is how the rows travel.
func (m Message) Form() Form {
	if m.ids != nil {
		return TokenIDs
	}
	return Embeddings
}

// Selection is the record of how the rows were chosen, nil if none was kept. It is
// shared, like the payload: nobody writes to it.
func (m Message) Selection() *Selection { return m.selection }

// Rows returns the rows as a model of the message's width takes them, in order:
// tokens as ids, others as vectors that nobody writes to.
func (m Message) Rows(to *Model) ([]state.Row, error) {
	if m.width != to.Info.Hidden {
		return nil, fail(ErrMessage, "width_mismatch", "the message has rows of %d values, the model takes %d", m.width, to.Info.Hidden)
	}
	rows := make([]state.Row, m.Positions())
	c := 0
	for i := range rows {
		if m.ids != nil && m.ids[i] >= 0 {
			if int(m.ids[i]) >= to.Info.Vocab {
				return nil, fail(ErrMessage, "vocab_range", "id %d of row %d is outside the model's vocabulary of %d", m.ids[i], i, to.Info.Vocab)
			}
			rows[i].Token = m.ids[i]
			continue
		}
		rows[i] = state.Row{Token: -1, Vec: m.rows[c*m.width : (c+1)*m.width : (c+1)*m.width]}
		c++
	}
	return rows, nil
}

// encode packs rows of a sender.
func encode(s *Sender, rows []state.Row, form Form) (Message, error) {
	m := Message{width: s.Model.Info.Hidden, from: &s.Model.Info}
	var ids []int32 // of the rows whose vector of the table is needed
	for _, r := range rows {
		if r.Token >= 0 && (r.Vec == nil) == (form == Embeddings) {
			ids = append(ids, r.Token)
		}
	}
	table, err := s.Model.EmbedRows(ids)
	if err != nil {
		return Message{}, err
	}
	if form == TokenIDs {
		m.ids = make([]int32, 0, len(rows))
	}
	for i, r := range rows {
		vec, token := r.Vec, r.Token >= 0
		if token && (vec == nil) == (form == Embeddings) {
			vec, table = table[:m.width], table[m.width:]
		}
		if form == TokenIDs {
			m.ids = append(m.ids, r.Token)
		}
		switch {
		case form == Embeddings || !token:
			m.rows = append(m.rows, vec...)
		case r.Vec != nil && !sameBits(r.Vec, vec):
			return Message{}, fail(ErrMessage, "ids_do_not_reproduce_rows", "selected row %d has the id %d and other values than the embedding's: send embeddings", i, r.Token)
		}
	}
	return m, nil
}

// Selection is the record of a selection: local data about a message, no payload.
type Selection struct {
	Source  int    `json:"source_positions"`       // positions that the selector saw
	Budget  int    `json:"budget"`                 // positions granted, those set aside for reasoning included
	Indices []int  `json:"indices"`                // positions kept, rising
	Spans   []Span `json:"spans"`                  // all positions of the source
	Added   int    `json:"added_latent_positions"` // rows that reasoning appended after selection

	// What a replay needs. Scores is the SHA-256 over the little-endian bits of the
	// score vector, zero if there was none (a selector from outside, or a budget
	// that covers the source).
	Selector string  `json:"selector,omitempty"` // name and options
	Request  []int32 `json:"request_ids,omitempty"`
	Latent   int     `json:"latent_steps,omitempty"` // latent tail of the source
	Scores   Digest  `json:"-"`
	Rows     Digest  `json:"-"`                 // of the rows of the source
	Reserve  int     `json:"reserve,omitempty"` // positions of Budget that were set aside for reasoning
}

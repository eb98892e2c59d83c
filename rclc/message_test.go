package rclc

import (
	"math/rand/v2"
	"slices"
	"testing"

	"samebit/backend"
	"samebit/backend/ref"
	"samebit/nn"
	"samebit/state"
	"samebit/tensor"
)

// tableModel is a model of which only the embedding exists.
func tableModel(t testing.TB, table []float32, vocab int) *Model {
	t.Helper()
	dev := ref.New()
	x, err := tensor.FromF32(table, vocab, len(table)/vocab)
	if err != nil {
		t.Fatal(err)
	}
	w, err := dev.Pack(x, backend.UseEmbed)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := state.NewPool(dev, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pool.Close(); dev.Unpack(w); dev.Close() })
	return &Model{dec: &nn.Decoder{Embed: w}, pool: pool, Info: Info{Hidden: len(table) / vocab, Vocab: vocab}}
}

func TestGoldenMessages(t *testing.T) {
	var f struct {
		Cases []struct {
			ID      string
			Form    string `json:"representation"`
			Table   array  `json:"embedding_table"`
			Senders []struct {
				IDs  []int32
				Rows array
			}
			Selected [][]int
			Prompt   []int32 `json:"receiver_prompt_ids"`
			Limit    int     `json:"context_limit"`
			New      int     `json:"max_new_tokens"`
			Expected struct {
				Messages []struct {
					Rows      array   `json:"continuous_rows"`
					IDs       []int32 `json:"token_ids"`
					Positions int
					Bytes     int
				}
				Rows      array   `json:"input_rows"`
				IDs       []int32 `json:"input_ids"`
				Positions []int   `json:"input_positions"`
				Inherited int     `json:"inherited_positions"`
				Records   [][]Span
			}
			Error string
		}
	}
	golden(t, "messages", &f)
	for _, c := range f.Cases {
		m := tableModel(t, c.Table.f32(t), c.Table.Shape[0])
		h := m.Info.Hidden
		form := Embeddings
		if c.Form == TokenIDs.String() {
			form = TokenIDs
		}
		err := func() error {
			var d Delivery
			for i, s := range c.Senders {
				from := &Sender{Model: m}
				v := s.Rows.f32(t)
				for p, id := range s.IDs {
					from.Rows = append(from.Rows, state.Row{Token: id, Vec: v[p*h : (p+1)*h]})
				}
				msg, err := encode(from, from.at(c.Selected[i]), form)
				if err != nil {
					return err
				}
				d.Messages = append(d.Messages, msg)
				if i < len(c.Expected.Messages) {
					e := &c.Expected.Messages[i]
					if !sameBits(msg.rows, e.Rows.f32(t)) || !slices.Equal(msg.ids, e.IDs) || (msg.ids == nil) != (e.IDs == nil) {
						t.Errorf("%s: message %d is %v %v, want %v %v", c.ID, i, msg.ids, msg.rows, e.IDs, e.Rows.f32(t))
					}
					if msg.Positions() != e.Positions || msg.Bytes() != e.Bytes {
						t.Errorf("%s: message %d has %d positions and %d bytes, want %d and %d", c.ID, i, msg.Positions(), msg.Bytes(), e.Positions, e.Bytes)
					}
					if got := spansOf(len(from.Rows), 0, from.IDs(), c.Selected[i], nil); !slices.Equal(got, c.Expected.Records[i]) {
						t.Errorf("%s: spans %v, want %v", c.ID, got, c.Expected.Records[i])
					}
				}
			}
			p, err := m.NewPlan(nil, Request{IDs: c.Prompt}, Placement{}, c.New, c.Limit)
			if err != nil {
				return err
			}
			rows, inherited, err := p.Assemble(m, d)
			if err != nil {
				return err
			}
			var values []float32
			var ids []int32
			for _, r := range rows {
				v := r.Vec
				if v == nil {
					if v, err = m.Row(r.Token); err != nil {
						return err
					}
				}
				values, ids = append(values, v...), append(ids, r.Token)
			}
			if !sameBits(values, c.Expected.Rows.f32(t)) || !slices.Equal(ids, c.Expected.IDs) || inherited != c.Expected.Inherited || len(ids) != len(c.Expected.Positions) {
				t.Errorf("%s: assembled %v (%d inherited), want %v (%d)", c.ID, ids, inherited, c.Expected.IDs, c.Expected.Inherited)
			}
			return nil
		}()
		wantCode(t, c.ID, err, c.Error)
	}
	if len(f.Cases) != 7 {
		t.Errorf("%d cases", len(f.Cases))
	}
}

// What a message does not fit is refused when it is materialised.
func TestMessageMismatch(t *testing.T) {
	m := tableModel(t, make([]float32, 12), 4)
	for _, c := range []struct {
		m    Message
		code string
	}{
		{Message{width: 2, rows: []float32{1, 2}}, "width_mismatch"},
		{Message{width: 3, ids: []int32{0, 4}}, "vocab_range"},
	} {
		if _, err := c.m.Rows(m); Code(err) != c.code {
			t.Errorf("error %v, want %s", err, c.code)
		}
		p := Plan{Prompt: []int32{1}, Allowance: 1, Limit: 10}
		if _, _, err := p.Assemble(m, Delivery{Messages: []Message{c.m}}); Code(err) != c.code {
			t.Errorf("assembling: error %v, want %s", err, c.code)
		}
	}
}

// Both forms give the receiver the same bits, of tokens, tokens with their vectors and
// continuous rows in any order, and ids are smaller.
func TestFormsAgree(t *testing.T) {
	const seed = 4
	r := rand.New(rand.NewPCG(seed, 1))
	table := make([]float32, 13*6)
	for i := range table {
		table[i] = float32(r.NormFloat64())
	}
	m := tableModel(t, table, 13)
	for n := range 40 {
		s := &Sender{Model: m}
		tokens := 0
		for range 1 + r.IntN(9) {
			row := state.Row{Token: int32(r.IntN(14)) - 1}
			if tokens++; row.Token < 0 {
				tokens--
				row.Vec = make([]float32, 6)
				for i := range row.Vec {
					row.Vec[i] = float32(r.NormFloat64())
				}
			} else if r.IntN(2) == 0 {
				row.Vec = slices.Clone(table[row.Token*6 : row.Token*6+6])
			}
			s.Rows = append(s.Rows, row)
		}
		dense, err := encode(s, s.Rows, Embeddings)
		if err != nil {
			t.Fatal(err)
		}
		mixed, err := encode(s, s.Rows, TokenIDs)
		if err != nil {
			t.Fatal(err)
		}
		a, err := dense.Rows(m)
		if err != nil {
			t.Fatal(err)
		}
		b, err := mixed.Rows(m)
		if err != nil {
			t.Fatal(err)
		}
		for i := range a {
			v := b[i].Vec
			if v == nil {
				v = table[b[i].Token*6 : b[i].Token*6+6]
			}
			if !sameBits(a[i].Vec, v) || b[i].Token != s.Rows[i].Token {
				t.Fatalf("seed %d, case %d: row %d differs", seed, n, i)
			}
		}
		if tokens*(4*6-8) != dense.Bytes()-mixed.Bytes()+8*(len(a)-tokens) {
			t.Fatalf("seed %d, case %d: %d and %d bytes for %d tokens of %d", seed, n, dense.Bytes(), mixed.Bytes(), tokens, len(a))
		}
	}
}

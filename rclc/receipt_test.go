package rclc

import (
	"bytes"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

// handover makes the message of a selection as a recorded transfer does.
func handover(t *testing.T, s *Sender, sel Selector, request []int32, budget int, form Form) Message {
	t.Helper()
	kept, scores, err := replay(bg, sel, s, &Selection{Request: request, Scores: Digest{1}}, budget)
	if err != nil {
		t.Fatal(err)
	}
	m := Message{width: s.Model.Info.Hidden, from: &s.Model.Info}
	for _, p := range kept {
		r := s.Rows[p]
		if form == TokenIDs {
			m.ids = append(m.ids, r.Token)
		}
		if form == TokenIDs && r.Token >= 0 {
			continue
		}
		vec := r.Vec
		if vec == nil {
			if vec, err = s.Model.Row(r.Token); err != nil {
				t.Fatal(err)
			}
		}
		m.rows = append(m.rows, vec...)
	}
	m.selection = &Selection{
		Source: s.Len(), Budget: budget, Indices: kept, Selector: sel.(Namer).Name(), Request: request, Latent: s.Latent, Rows: rowsDigest(s),
	}
	if scores != nil {
		m.selection.Scores = scoresDigest(scores)
	}
	return m
}

// viaFile is m as another process reads it.
func viaFile(t *testing.T, m Message, to *Model) Message {
	t.Helper()
	got, err := ReadMessage(bytes.NewReader(wireBytes(t, m)), to, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

const receiptText = "The launch of the probe is on Tuesday. Mara owns the antenna, and Ivo the engine; the storm on Monday moves nothing. Ask Mara about the antenna before noon."

func TestVerify(t *testing.T) {
	for _, name := range agentModels {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, name)
			s, err := FromText(bg, g.Model, receiptText)
			g.must(err)
			t.Cleanup(s.Release)
			tail, err := Latent{Steps: 3}.Reason(bg, s, 3, nil)
			g.must(err)
			t.Cleanup(tail.Release)
			request := g.tok.EncodePlain(nil, "Who owns the antenna?")
			for _, sel := range []Selector{CacheBack{}, CacheBack{Span: 3}, QSnap{Span: 5}, ChunkKV{Chunk: 4, Window: 7, Kernel: 3}} {
				for _, from := range []*Sender{s, tail} {
					for _, form := range []Form{Embeddings, TokenIDs} {
						for _, budget := range []int{5, 17, from.Len()} {
							m := viaFile(t, handover(t, from, sel, request, budget, form), g.Model)
							v, err := Verify(bg, from, m, nil)
							if err != nil {
								t.Fatalf("%s, %v, budget %d: %v", m.selection.Selector, form, budget, err)
							}
							if !v.Equal() || v.Scored != (budget < from.Len()) || v.Kept != budget || v.Source != from.Len() {
								t.Errorf("%s, %v, budget %d: %+v", m.selection.Selector, form, budget, v)
							}
						}
					}
				}
			}
		})
	}
}

// A transfer's own receipts, of deliveries that went through files.
func TestVerifyTransfer(t *testing.T) {
	for _, name := range agentModels {
		g := newRig(t, name)
		s, err := FromText(bg, g.Model, receiptText)
		g.must(err)
		t.Cleanup(s.Release)
		for _, cfg := range []Config{
			{Ratio: 3}, {Budget: 9, Selector: QSnap{Span: 2}, Form: TokenIDs}, {Ratio: 1},
			{Budget: 30, Selector: ChunkKV{Window: 5}, Reason: Latent{Steps: 4}, ReasonContext: Selected, ReasonBudget: 6},
			{Budget: 30, Reason: Latent{Steps: 4}, ReasonContext: SelectedWithRequest, ReasonBudget: 4, Form: TokenIDs},
		} {
			cfg.Record = true
			var got Delivery
			into := ReceiverFunc(func(_ context.Context, d Delivery) error { got = d; return nil })
			g.must(Transfer(bg, []Source{s, s}, []Receiver{into}, []Request{{Text: "Who owns the antenna?"}}, cfg))
			d, err := ReadDelivery(bytes.NewReader(wireBytes(t, got)), g.Model, Limits{})
			g.must(err)
			for i, m := range d.Messages {
				v, err := Verify(bg, s, m, nil)
				g.must(err)
				if !v.Equal() || v.Kept != len(m.Selection().Indices) || m.Selection().Added != len(m.rows)/m.width-rowsBefore(m) {
					t.Errorf("%s, %+v, message %d: %+v", name, cfg, i, v)
				}
				a, err := m.Rows(g.Model)
				g.must(err)
				b, err := got.Messages[i].Rows(g.Model)
				g.must(err)
				for k := range a {
					if a[k].Token != b[k].Token || !sameBits(a[k].Vec, b[k].Vec) {
						t.Errorf("%s, %+v, message %d: row %d has other bits", name, cfg, i, k)
					}
				}
			}
		}
	}
}

// rowsBefore is how many of a message's continuous rows were selected, not added.
func rowsBefore(m Message) int {
	if m.ids == nil {
		return len(m.selection.Indices)
	}
	n := 0
	for _, id := range m.ids[:len(m.selection.Indices)] {
		if id < 0 {
			n++
		}
	}
	return n
}

// What is not as the receipt says is named.
func TestVerifyDifferences(t *testing.T) {
	g := newRig(t, agentModels[0])
	s, err := FromText(bg, g.Model, receiptText)
	g.must(err)
	t.Cleanup(s.Release)
	ids := g.tok.EncodePlain(nil, receiptText)
	ids[11]++
	other, err := FromTokens(bg, g.Model, ids)
	g.must(err)
	t.Cleanup(other.Release)
	longer, err := FromText(bg, g.Model, receiptText+" Soon.")
	g.must(err)
	t.Cleanup(longer.Release)
	request := g.tok.EncodePlain(nil, "Who owns the antenna?")
	dense := handover(t, s, CacheBack{Span: 4}, request, 20, Embeddings)
	mixed := handover(t, s, CacheBack{Span: 4}, request, 20, TokenIDs)
	changed := func(m Message, f func(m *Message, r *Selection)) Message {
		r := *m.selection
		r.Indices = slices.Clone(r.Indices)
		m.rows, m.ids = slices.Clone(m.rows), slices.Clone(m.ids)
		m.selection = &r
		f(&m, &r)
		return m
	}
	free := func(r *Selection) int { // a position that was not kept
		for p := range r.Source {
			if !slices.Contains(r.Indices, p) {
				return p
			}
		}
		return -1
	}
	for _, tt := range []struct {
		what string
		from *Sender
		m    Message
		want []string // beginnings of the differences
	}{
		{"another text", other, mixed, []string{"rows: ", "positions: |scores: "}},
		{"a longer sender", longer, mixed, []string{"source: "}},
		{"another request", s, changed(mixed, func(_ *Message, r *Selection) { r.Request = g.tok.EncodePlain(nil, "When does the storm come?") }), []string{"positions: |scores: "}},
		{"a position that was not kept", s, changed(mixed, func(m *Message, r *Selection) {
			r.Indices[len(r.Indices)-1] = free(r)
			slices.Sort(r.Indices)
			for i, p := range r.Indices {
				m.ids[i] = s.Rows[p].Token
			}
		}), []string{"positions: 20 are kept now, 20 by the receipt; only by the receipt: ["}},
		{"a bit of the scores", s, changed(mixed, func(_ *Message, r *Selection) { r.Scores[3] ^= 1 }), []string{"scores: the bits of "}},
		{"scores that cannot be", s, changed(mixed, func(_ *Message, r *Selection) { r.Scores = Digest{} }), []string{"scores: the selector scored now: true"}},
		{"a bit of a row", s, changed(dense, func(m *Message, _ *Selection) {
			m.rows[m.width+3] = math.Float32frombits(math.Float32bits(m.rows[m.width+3]) ^ 1)
		}), []string{"payload: 1 of 20 rows are not the sender's: row 1 has other values"}},
		{"a token", s, changed(mixed, func(m *Message, _ *Selection) { m.ids[2]++ }), []string{"payload: 1 of 20 rows are not the sender's: row 2 is token "}},
		{"a latent tail", s, changed(mixed, func(_ *Message, r *Selection) { r.Latent = 1 }), []string{"latent tail: the sender has 0 rows, the receipt 1"}},
		{"another model", s, changed(mixed, func(m *Message, _ *Selection) {
			i := *m.from
			i.ID[0]++
			m.from = &i
		}), []string{"model: the sender has a model of digest"}},
	} {
		v, err := Verify(bg, tt.from, tt.m, nil)
		if err != nil {
			t.Errorf("%s: %v", tt.what, err)
			continue
		}
		for _, w := range tt.want {
			found := false
			for _, d := range v.Differences {
				for _, b := range strings.Split(w, "|") {
					found = found || strings.HasPrefix(d, b)
				}
			}
			if !found {
				t.Errorf("%s: differences %q, want one that begins with %q", tt.what, v.Differences, w)
			}
		}
		if v.Equal() {
			t.Errorf("%s: equal", tt.what)
		}
	}
	none := mixed
	none.selection = nil
	_, err = Verify(bg, s, none, nil)
	g.refused("no receipt", err, ErrSelection, "receipt")
	_, err = Verify(bg, s, changed(mixed, func(_ *Message, r *Selection) { r.Selector = "mine" }), nil)
	g.refused("a selector from outside", err, ErrOption, "selector_name")
	fails := errors.New("no")
	_, err = Verify(bg, s, mixed, SelectorFunc(func(context.Context, *Sender, []int32, int) ([]int, error) { return nil, fails }))
	g.refused("a selector that fails", err, ErrSelection, "selector")
	if !errors.Is(err, fails) {
		t.Errorf("the reason is lost: %v", err)
	}
	// A selector from outside is repeated when it is given.
	mine := SelectorFunc(func(_ context.Context, _ *Sender, _ []int32, budget int) ([]int, error) { return []int{7, 3, 0}, nil })
	m := changed(mixed, func(m *Message, r *Selection) {
		r.Indices, r.Selector, r.Scores, m.ids = []int{0, 3, 7}, "mine", Digest{}, []int32{s.Rows[0].Token, s.Rows[3].Token, s.Rows[7].Token}
	})
	v, err := Verify(bg, s, m, mine)
	if err != nil || !v.Equal() || v.Scored {
		t.Errorf("a selector from outside: %+v, %v", v, err)
	}
	ctx, cancel := context.WithCancel(bg)
	cancel()
	if _, err := Verify(ctx, s, mixed, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

package rclc

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"samebit/token/jinja"
)

func (g *rig) digest(s *Sender) Digest {
	g.t.Helper()
	d, err := s.stateDigest()
	g.must(err)
	return d
}

// payload are a delivery's bytes, for comparisons.
func payload(d Delivery) string {
	var b strings.Builder
	for _, m := range d.Messages {
		fmt.Fprintf(&b, "%d %x|", m.ids, rowsText(m.rows))
	}
	return b.String()
}

func rowsText(v []float32) []uint32 {
	out := make([]uint32, len(v))
	for i, x := range v {
		out[i] = math.Float32bits(x)
	}
	return out
}

// Agents hand over, answer, and hand on, in all forms and placements; the receiver
// continues with the bits of a run from nothing over the same rows.
func TestConversation(t *testing.T) {
	bothModels(t, func(t *testing.T, g *rig) {
		for _, form := range []Form{Embeddings, TokenIDs} {
			for _, where := range []Placement{{}, {InTurn: true, Before: "Evidence: ", After: "\n\n"}} {
				keeper := g.bind(AgentConfig{Text: strings.Repeat(story+" ", 2)})
				clerk := g.bind(AgentConfig{History: func() []jinja.Message { return []jinja.Message{says("user", "The desk is in hall nine.")} }})
				boss := g.bind(AgentConfig{History: func() []jinja.Message { return []jinja.Message{says("system", "Answer shortly.")} }, MaxNewTokens: 6})
				was := g.digest(g.sender(keeper))
				cfg := Config{Ratio: 4, Selector: CacheBack{Span: 4}, Form: form, Placement: where, Record: true}
				g.must(Transfer(bg, []Source{keeper, clerk}, []Receiver{boss}, []Request{{Text: "Who sleeps?"}, {Text: "Where is the desk?"}}, cfg))
				if g.digest(g.sender(keeper)) != was {
					t.Fatal("the transfer changed the sender")
				}
				r := boss.Inspect(true)
				if r.QueuedRequests != 2 || r.Deliveries[1].Senders != 2 || r.Deliveries[0].Retained[0] != (g.sender(keeper).Len()+3)/4 || r.Deliveries[0].Selections[0] == nil {
					t.Fatalf("inspection says %+v", r)
				}
				for range 2 {
					in, err := boss.Pop(bg, PopConfig{DiscardPending: true})
					g.must(err)
					ids, run := g.generate(in, 3)
					snap, err := run.Snapshot()
					g.must(err)
					g.must(boss.Update(bg, in, Generation{IDs: append(ids, 9), Snap: snap}))
					snap.Release()
				}
				s := g.sender(boss)
				g.exact("the receiver's continuation", s)
				if s.Inherited == 0 {
					t.Error("nothing counts as inherited")
				}
				// What was answered is handed back; inherited rows count in full.
				g.must(Transfer(bg, []Source{boss}, []Receiver{keeper}, []Request{{Text: "What next?"}}, cfg))
				if got, want := keeper.Inspect(false).Deliveries[0].Retained[0], s.Inherited+(s.Len()-s.Inherited+3)/4; got != want {
					t.Errorf("handed back %d positions of %d with %d inherited, want %d", got, s.Len(), s.Inherited, want)
				}
				keeper.Close()
				clerk.Close()
				boss.Close()
			}
		}
	})
}

// A transfer that fails or is cancelled leaves agents and queues as they were.
func TestConversationFails(t *testing.T) {
	bothModels(t, func(t *testing.T, g *rig) {
		a := g.bind(AgentConfig{Text: story})
		b := g.bind(AgentConfig{Text: "Another story, of a ship without a captain."})
		to := g.bind(AgentConfig{History: func() []jinja.Message { return []jinja.Message{says("system", "Be brief.")} }, ContextLimit: 60, MaxNewTokens: 8})
		was := [3]Report{a.Inspect(true), b.Inspect(true), to.Inspect(true)}
		unchanged := func(what string) {
			t.Helper()
			for i, x := range []*Agent{a, b, to} {
				if got := fmt.Sprint(x.Inspect(true)); got != fmt.Sprint(was[i]) {
					t.Errorf("%s: agent %d is %s, was %v", what, i, got, was[i])
				}
			}
		}
		_, err := a.Inputs(bg, 1)
		g.must(err)
		err = Transfer(bg, []Source{b, a}, []Receiver{to}, []Request{{Text: "Who?"}}, Config{})
		g.refused("a sender with pending inputs", err, ErrPending, "pending")
		g.must(a.Discard(bg))
		unchanged("pending")
		errGone := errors.New("the source is gone")
		bad := SelectorFunc(func(_ context.Context, s *Sender, _ []int32, budget int) ([]int, error) {
			if s.Rows[0].Token != g.sender(a).Rows[0].Token {
				return nil, errGone
			}
			return []int{0}, nil
		})
		if err := Transfer(bg, []Source{a, b}, []Receiver{to}, []Request{{Text: "Who?"}}, Config{Selector: bad}); !errors.Is(err, errGone) {
			t.Errorf("a failing selector: %v", err)
		}
		unchanged("a failing selector")
		err = Transfer(bg, []Source{a, b}, []Receiver{to}, []Request{{IDs: []int32{4, 5}}}, Config{})
		g.refused("a request of ids", err, ErrRequest, "request_history")
		tight := g.bind(AgentConfig{ContextLimit: 12, MaxNewTokens: 8})
		err = Transfer(bg, []Source{a, b}, []Receiver{to, tight}, []Request{{Text: "Who?"}}, Config{})
		g.refused("a full receiver", err, ErrReceiverFull, "receiver_full")
		unchanged("a full receiver")
		ctx, cancel := context.WithCancel(bg)
		g.before = func() { cancel() }
		if err := Transfer(ctx, []Source{a, b}, []Receiver{to}, []Request{{Text: "Who?"}}, Config{}); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		g.before = nil
		unchanged("cancelled")
	})
}

// Latent rows that saw the request keep no trace of it, in the sender, in the
// message, and in what the agent holds.
func TestRequestLeavesNoTrace(t *testing.T) {
	bothModels(t, func(t *testing.T, g *rig) {
		a := g.bind(AgentConfig{Text: story})
		s := g.sender(a)
		was := g.digest(s)
		request := g.tok.EncodePlain(nil, "Who sleeps by day?")
		grown, err := LatentMass(bg, s, LatentConfig{Steps: 3, Request: request})
		g.must(err)
		defer grown.Release()
		if grown.Len() != s.Len()+3 || grown.Latent != 3 || !slices.Equal(grown.IDs()[:s.Len()], s.IDs()) {
			t.Errorf("%d rows, %d latent", grown.Len(), grown.Latent)
		}
		// The state is that of the rows alone: the request's keys are gone.
		g.exact("grown", grown)
		again, err := FromRows(bg, g.Model, grown.Rows)
		g.must(err)
		defer again.Release()
		if g.digest(again) != g.digest(grown) {
			t.Error("the state is not that of its rows")
		}
		// It did see the request.
		blind, err := LatentMass(bg, s, LatentConfig{Steps: 3})
		g.must(err)
		defer blind.Release()
		if sameBits(blind.Rows[s.Len()].Vec, grown.Rows[s.Len()].Vec) {
			t.Error("the thoughts do not depend on the request")
		}
		to := g.bind(AgentConfig{})
		g.must(Transfer(bg, []Source{a}, []Receiver{to}, []Request{{IDs: request}}, Config{Budget: 12, Form: TokenIDs, Reason: Latent{Steps: 3}, ReasonContext: FullWithRequest, Record: true}))
		for _, d := range to.Queue() {
			m := d.Messages[0]
			rows, err := m.Rows(g.Model)
			g.must(err)
			tail := rows[len(rows)-3:]
			for i, r := range tail {
				if r.Token != -1 || !sameBits(r.Vec, grown.Rows[s.Len()+i].Vec) {
					t.Errorf("row %d of the tail is not the thought", i)
				}
			}
			for i, p := range m.Selection().Indices[:len(rows)-3] {
				if rows[i].Token != s.Rows[p].Token {
					t.Errorf("row %d of the message is no row of the sender", i)
				}
			}
		}
		if now := g.sender(a); g.digest(now) != was || now.Len() != s.Len() || now.Latent != 0 {
			t.Error("the agent's own state changed")
		}
		g.must(a.Append(bg, request[:2]))
		g.exact("appended afterwards", g.sender(a))
	})
}

// Rows of a hop that are sent on: a latent tail becomes ordinary rows when something
// is appended.
func TestAppendAfterLatent(t *testing.T) {
	bothModels(t, func(t *testing.T, g *rig) {
		s := g.thinker(4, 20)
		a := g.bind(AgentConfig{Sender: s})
		g.must(a.Append(bg, []int32{5, 6}))
		n := g.sender(a)
		if n.Latent != 0 || n.Inherited != 5 || !slices.Equal(n.IDs(), append(s.IDs(), 5, 6)) {
			t.Errorf("%d latent, %d inherited of %v", n.Latent, n.Inherited, n.IDs())
		}
		g.exact("appended", n)
		unknown := *s
		unknown.NoIDs, unknown.Latent = true, 0
		unknown.Rows = slices.Clone(s.Rows)
		for i, r := range unknown.Rows {
			if r.Token >= 0 {
				v, err := g.Row(r.Token)
				g.must(err)
				unknown.Rows[i].Token, unknown.Rows[i].Vec = -1, v
			}
		}
		b := g.bind(AgentConfig{Sender: &unknown})
		g.must(b.Append(bg, []int32{5, 6}))
		if n := g.sender(b); n.NoIDs || n.IDs()[0] != -1 || n.IDs()[21] != 6 {
			t.Errorf("unknown ids became %v", n.IDs())
		}
		g.exact("appended to unknown", g.sender(b))
	})
}

// Two agents of one model transfer to each other at the same time as they are
// appended to, inspected and popped: every message has the bits of a quiet run.
func TestAgentsTogether(t *testing.T) {
	bothModels(t, func(t *testing.T, g *rig) {
		texts := []string{strings.Repeat(story+" ", 2), "A ship without a captain sails at dawn. Its crew plays cards. " + story}
		request := Request{Text: "Who sleeps?"}
		cfg := Config{Selector: CacheBack{Span: 4}, Form: TokenIDs}
		bind := func() (l [2]*Agent) {
			for i := range l {
				l[i] = g.bind(AgentConfig{Text: texts[i], History: func() []jinja.Message { return []jinja.Message{says("system", "Be brief.")} }})
			}
			return l
		}
		var want [2]map[string]bool // by sender: the message before and after it is appended to
		quiet := bind()
		more := g.tok.EncodePlain(nil, " The end.")
		for i, a := range quiet {
			want[i] = map[string]bool{}
			for range 2 {
				to := ReceiverFunc(func(_ context.Context, d Delivery) error { want[i][payload(d)] = true; return nil })
				g.must(Transfer(bg, []Source{a}, []Receiver{to}, []Request{request}, cfg))
				g.must(a.Append(bg, more))
			}
		}
		const rounds = 3
		l := bind()
		var wg sync.WaitGroup
		for i, a := range l {
			wg.Go(func() {
				for range rounds {
					if err := Transfer(bg, []Source{a}, []Receiver{l[1-i]}, []Request{request}, cfg); err != nil {
						t.Error(err)
					}
				}
			})
			wg.Go(func() {
				if err := a.Append(bg, more); err != nil {
					t.Error(err)
				}
			})
			wg.Go(func() {
				for range 20 {
					a.Inspect(true)
					for range a.Queue() {
					}
					Check(a, CheckConfig{})
				}
			})
		}
		wg.Wait()
		for i, a := range l {
			n := 0
			for _, d := range a.Queue() {
				n++
				if !want[1-i][payload(d)] {
					t.Errorf("agent %d received a message that no quiet run makes", i)
				}
			}
			if n != rounds {
				t.Errorf("agent %d received %d deliveries, want %d", i, n, rounds)
			}
			in, err := a.Pop(bg, PopConfig{})
			g.must(err)
			g.must(a.Update(bg, in, Generation{}))
			g.exact("popped", g.sender(a))
		}
	})
}

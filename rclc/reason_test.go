package rclc

import (
	"context"
	"errors"
	"slices"
	"testing"

	"samebit/nn"
	"samebit/state"
)

// appendRows is a reasoner that adds rows and then spoils the result.
func appendRows(n int, spoil func(s *Sender)) ReasonerFunc {
	return func(ctx context.Context, s *Sender, limit int, request []int32) (*Sender, error) {
		var rows []state.Row
		for i := range n {
			v := make([]float32, s.Model.Info.Hidden)
			v[i%len(v)] = 0.25
			rows = append(rows, state.Row{Token: -1, Vec: v})
		}
		g, err := s.Extend(ctx, rows)
		if err != nil {
			return nil, err
		}
		g.Latent = s.Latent + n
		if spoil != nil {
			spoil(g)
		}
		return g, nil
	}
}

// TestReasonersFromOutside: what a reasoner from outside returns is taken if it is the
// sender with rows more, and refused, with nothing delivered, if it is not.
func TestReasonersFromOutside(t *testing.T) {
	for _, name := range []string{"qwen3-tied-fp32", "qwen35-8l-bf16"} {
		m := core(t, processor(t, 2, ""), name, ModelConfig{})
		s := fromRows(t, m, mixedRows(2, 70, m))
		before, used := fingerprint(t, s), m.pool.Bytes()
		for _, c := range []struct {
			code string
			r    ReasonerFunc
		}{
			{"", appendRows(3, nil)},
			{"", appendRows(0, nil)},
			{"reason_rows", appendRows(4, nil)},
			{"reason_latent", appendRows(3, func(s *Sender) { s.Latent = 2 })},
			{"reason_inherited", appendRows(3, func(s *Sender) { s.Inherited = 1 })},
			{"reason_prefix", appendRows(3, func(s *Sender) { s.Rows[0].Token++ })},
			{"reason_prefix", appendRows(3, func(s *Sender) { s.Rows[4].Vec[2] += 1 })},
			{"reason_state", appendRows(3, func(s *Sender) { s.Rows[71].Vec[5] = 1 })},
			{"reason_finite", appendRows(3, func(s *Sender) { s.Rows[71].Vec[5] /= 0 * s.Rows[71].Vec[5] })},
			{"reason_state", appendRows(3, func(s *Sender) { s.LastHidden[0]++ })},
			{"cache_length", appendRows(3, func(s *Sender) { s.Rows = s.Rows[:72]; s.Latent = 2 })},
			{"reason_nil", func(context.Context, *Sender, int, []int32) (*Sender, error) { return nil, nil }},
			{"reason", func(_ context.Context, s *Sender, _ int, _ []int32) (*Sender, error) {
				return s.Retain(), errors.New("no")
			}},
			{"reason_model", appendRows(3, func(s *Sender) { s.Model = varied(s.Model, func(*Model) {}) })},
			{"reason_state", func(ctx context.Context, s *Sender, _ int, request []int32) (*Sender, error) {
				// It feeds the request, and keeps what that left.
				g, err := s.Extend(ctx, state.Tokens([]int32{7}))
				if err == nil {
					g.Rows[len(g.Rows)-1] = state.Row{Token: -1, Vec: make([]float32, s.Model.Info.Hidden)}
					g.Latent, g.LastHidden = s.Latent+1, nil
				}
				return g, err
			}},
		} {
			to := &inbox{m: m}
			err := Transfer(bg, []Source{s}, []Receiver{to}, []Request{{IDs: []int32{1, 2}}}, Config{Reason: c.r, ReasonBudget: 3, Ratio: 2})
			if Code(err) != c.code || (err != nil) != (c.code != "") || err != nil && !errors.Is(err, ErrReason) {
				t.Errorf("%s: error %v, want %q", name, err, c.code)
			}
			if (len(to.got) > 0) != (err == nil) {
				t.Errorf("%s: %s: %d deliveries", name, c.code, len(to.got))
			}
			before.same(t, s)
			if n := m.pool.Bytes(); n != used {
				t.Errorf("%s: %s: %d bytes of states, %d before", name, c.code, n, used)
			}
		}
	}
}

// TestReasonSees checks what a reasoner is given in each context, and what becomes of
// the positions set aside.
func TestReasonSees(t *testing.T) {
	m := core(t, processor(t, 2, ""), "qwen3-tied-fp32", ModelConfig{})
	s := tokens(t, m, script(1, 80, m.Info.Vocab))
	request := []int32{5, 6, 7}
	for _, c := range []struct {
		in        ReasonContext
		rows      int // that the reasoner sees
		limit     int
		request   []int32
		positions int
	}{
		{Full, 80, 4, nil, 21}, // ⌈82/4⌉, two of them the new rows
		{FullWithRequest, 80, 4, request, 21},
		{Selected, 17, 4, nil, 19}, // ⌈84/4⌉ - 4, and two of the four set aside
		{SelectedWithRequest, 17, 4, request, 19},
	} {
		calls := 0
		r := ReasonerFunc(func(ctx context.Context, in *Sender, limit int, request []int32) (*Sender, error) {
			calls++
			if in.Len() != c.rows || limit != c.limit || !slices.Equal(request, c.request) || in.Latent != 0 || in.Inherited != 0 {
				t.Errorf("%v: %d rows, limit %d, request %v", c.in, in.Len(), limit, request)
			}
			return appendRows(2, nil)(ctx, in, limit, request)
		})
		to := &inbox{m: m}
		err := Transfer(bg, []Source{s}, []Receiver{to}, []Request{{IDs: request}, {IDs: request}}, Config{Reason: r, ReasonContext: c.in, ReasonBudget: 4, Record: true})
		if err != nil {
			t.Fatal(err)
		}
		if want := map[ReasonContext]int{Full: 1}[c.in]; calls != want && (want == 1 || calls != 2) {
			t.Errorf("%v: %d calls", c.in, calls)
		}
		for _, d := range to.got {
			sel := d.Messages[0].Selection()
			if d.Positions() != c.positions || sel.Added != map[bool]int{true: 2}[c.in.after()] || sel.Budget != 21 {
				t.Errorf("%v: %d positions, %d added, budget %d; want %d", c.in, d.Positions(), sel.Added, sel.Budget, c.positions)
			}
		}
	}
}

// The context bounds reasoning that has no budget.
func TestReasonContextLimit(t *testing.T) {
	m := core(t, processor(t, 2, ""), "qwen3-tied-fp32", ModelConfig{})
	s := tokens(t, m, script(1, 500, m.Info.Vocab))
	limits := []int{}
	r := ReasonerFunc(func(ctx context.Context, in *Sender, limit int, request []int32) (*Sender, error) {
		limits = append(limits, limit)
		return in.Retain(), nil
	})
	requests := []Request{{IDs: script(1, 5, 9)}, {IDs: script(1, 9, 9)}}
	to := []Receiver{&inbox{m: m}}
	if err := Transfer(bg, []Source{s}, to, requests, Config{Reason: r}); err != nil || !slices.Equal(limits, []int{3}) {
		t.Errorf("limits %v, %v", limits, err)
	}
	requests[1].IDs = script(1, 13, 9)
	if err := Transfer(bg, []Source{s}, to, requests, Config{Reason: r}); Code(err) != "reason_context_limit" || !errors.Is(err, ErrContext) {
		t.Errorf("error %v", err)
	}
}

// A runner's own sequence is a sender without being run again.
func TestFromRunner(t *testing.T) {
	m := core(t, processor(t, 1, ""), "qwen35-8l-bf16", ModelConfig{})
	rows := mixedRows(6, 70, m)
	want := fromRows(t, m, rows)
	err := m.scratch(func(r *nn.Runner) error {
		if err := r.Append(bg, rows); err != nil {
			return err
		}
		s, err := FromRunner(m, r)
		if err != nil {
			return err
		}
		defer s.Release()
		fingerprint(t, want).same(t, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

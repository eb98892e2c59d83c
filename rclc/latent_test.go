package rclc

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"samebit/backend"
	"samebit/backend/ref"
	"samebit/nn"
	"samebit/state"
)

func TestGoldenLatent(t *testing.T) {
	var g struct {
		Cases []struct {
			ID, Note      string
			Table, Hidden *array
			Embedding     *array `json:"embedding_table"`
			Expected      struct {
				Norm    float64 `json:"target_norm"`
				Thought []float64
			}
		}
	}
	golden(t, "latent", &g)
	if len(g.Cases) != 4 {
		t.Errorf("%d cases", len(g.Cases))
	}
	for _, c := range g.Cases {
		table, width := c.Embedding.f32(t), c.Embedding.Shape[1]
		var norms []float32
		for row := range slices.Chunk(table, width) {
			norms = append(norms, norm(row))
		}
		nu := mean(norms)
		near(t, c.ID+": norm", []float32{nu}, []float64{c.Expected.Norm}, 2e-6, 0)
		near(t, c.ID+": thought", thought(c.Hidden.f32(t), nu), c.Expected.Thought, 2e-6, 1e-7)
	}
	// The norm of a whole model, in float32 and by the device's own rows.
	var e endToEnd
	golden(t, "end-to-end", &e)
	var more struct {
		Norm float64 `json:"target_norm"`
	}
	golden(t, "end-to-end", &more)
	m := e.open(t, ref.New())
	nu, err := m.meanNorm(bg)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "norm of the model", []float32{nu}, []float64{more.Norm}, 2e-6, 0)
}

// rerun is the definition: at every step the whole prefix runs from nothing.
func rerun(t testing.TB, m *Model, rows []state.Row, request []int32, steps int) (thoughts []state.Row) {
	t.Helper()
	nu, err := m.meanNorm(bg)
	if err != nil {
		t.Fatal(err)
	}
	for range steps {
		all := slices.Concat(rows, state.Tokens(request), thoughts)
		err := m.scratch(func(r *nn.Runner) error {
			h, err := appended(bg, r, all)
			if err == nil {
				thoughts = append(thoughts, state.Row{Token: -1, Vec: thought(h, nu)})
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return thoughts
}

func TestLatentMassIsItsDefinition(t *testing.T) {
	devices := []backend.Device{processor(t, 3, ""), processor(t, 1, "generic")}
	if testing.Short() { // one processor has nothing that the race detector would see
		devices = devices[:1]
	}
	for _, name := range coreModels {
		t.Run(name, func(t *testing.T) {
			for i, dev := range devices {
				m := core(t, dev, name, ModelConfig{ChunkRows: 17 + i})
				s := fromRows(t, m, mixedRows(3, 71, m))
				s.Inherited = 9
				was := fingerprint(t, s)
				for _, request := range [][]int32{nil, script(5, 7, m.Info.Vocab)} {
					want := rerun(t, m, s.Rows, request, 4)
					for _, forgot := range []bool{false, true} {
						from := s.Retain()
						if forgot {
							from.LastHidden = nil
						}
						got, err := LatentMass(bg, from, LatentConfig{Steps: 4, Max: 4, Request: request})
						from.Release()
						if err != nil {
							t.Fatal(err)
						}
						if got.Latent != 4 || got.Inherited != 9 || got.Len() != 75 || got.Validate() != nil {
							t.Errorf("%d latent and %d inherited rows of %d: %v", got.Latent, got.Inherited, got.Len(), got.Validate())
						}
						for k, w := range want {
							if g := got.Rows[71+k]; g.Token != -1 || !sameBits(g.Vec, w.Vec) {
								t.Errorf("%s, request of %d: thought %d has other bits than the whole prefix gives", dev.Name(), len(request), k)
							}
						}
						// The request leaves no trace: the state is that of the rows alone.
						fresh := fromRows(t, m, got.Rows)
						if a, b := fingerprint(t, got), fingerprint(t, fresh); a.rows != b.rows || a.state != b.state || !sameBits(a.hidden, b.hidden) {
							t.Errorf("%s, request of %d: the state is not that of its rows", dev.Name(), len(request))
						}
						// More steps go on from there.
						more, err := LatentMass(bg, got, LatentConfig{Steps: 2})
						if err != nil {
							t.Fatal(err)
						}
						if more.Latent != 6 || more.Len() != 77 {
							t.Errorf("%d latent of %d rows", more.Latent, more.Len())
						}
						more.Release()
						got.Release()
					}
				}
				was.same(t, s)
			}
		})
	}
}

// In every context the rows that travel are those of LatentMass on what the context
// names.
func TestLatentInTransfers(t *testing.T) {
	dev := processor(t, 2, "")
	for _, name := range []string{"qwen3-tied-fp32", "qwen35-8l-bf16"} {
		m := core(t, dev, name, ModelConfig{})
		s := tokens(t, m, script(8, 90, m.Info.Vocab))
		request := script(9, 6, m.Info.Vocab)
		for _, where := range []ReasonContext{Full, FullWithRequest, Selected, SelectedWithRequest} {
			t.Run(fmt.Sprint(name, " ", where), func(t *testing.T) {
				var got Delivery
				to := ReceiverFunc(func(_ context.Context, d Delivery) error { got = d; return nil })
				err := Transfer(bg, []Source{s}, []Receiver{to}, []Request{{IDs: request}},
					Config{Budget: 24, Reason: Latent{Steps: 3}, ReasonContext: where, ReasonBudget: 3, Form: TokenIDs, Record: true})
				if err != nil {
					t.Fatal(err)
				}
				rows, err := got.Messages[0].Rows(m)
				if err != nil {
					t.Fatal(err)
				}
				before := s
				if where.after() {
					before = fromRows(t, m, rows[:len(rows)-3])
				}
				cfg := LatentConfig{Steps: 3}
				if where.sees() {
					cfg.Request = request
				}
				want, err := LatentMass(bg, before, cfg)
				if err != nil {
					t.Fatal(err)
				}
				defer want.Release()
				if len(rows) != 24 {
					t.Errorf("%d rows of a budget of 24", len(rows))
				}
				for k := range 3 {
					if g := rows[len(rows)-3+k]; g.Token != -1 || !sameBits(g.Vec, want.Rows[before.Len()+k].Vec) {
						t.Errorf("latent row %d is not that of LatentMass", k)
					}
				}
				if added := got.Messages[0].Selection().Added; added != map[bool]int{true: 3}[where.after()] {
					t.Errorf("%d rows were added after the selection", added)
				}
			})
		}
	}
}

// An alignment is one product per thought, the same on every device; the identity
// is none.
func TestLatentAlign(t *testing.T) {
	var first []state.Row
	for _, dev := range []backend.Device{processor(t, 3, ""), ref.New()} {
		m := core(t, dev, "qwen3-tied-fp32", ModelConfig{})
		s := tokens(t, m, script(2, 20, m.Info.Vocab))
		n := m.Info.Hidden
		unit, any := make([]float32, n*n), make([]float32, n*n)
		r := rand.New(rand.NewPCG(1, 1))
		for i := range any {
			any[i] = float32(r.NormFloat64())
			if i/n == i%n {
				unit[i] = 1
			}
		}
		roll := func(a []float32) []state.Row {
			got, err := LatentMass(bg, s, LatentConfig{Steps: 3, Align: a})
			if err != nil {
				t.Fatal(err)
			}
			defer got.Release()
			return slices.Clone(got.Rows[20:])
		}
		plain, same, other := roll(nil), roll(unit), roll(any)
		for k := range plain {
			if !sameBits(plain[k].Vec, same[k].Vec) {
				t.Errorf("%s: thought %d differs by the identity", dev.Name(), k)
			}
			if sameBits(plain[k].Vec, other[k].Vec) {
				t.Errorf("%s: thought %d does not see the alignment", dev.Name(), k)
			}
			if first != nil && !sameBits(first[k].Vec, other[k].Vec) {
				t.Errorf("%s: thought %d has other bits than on another device", dev.Name(), k)
			}
		}
		first = other
	}
}

func TestLatentRefuses(t *testing.T) {
	m := core(t, processor(t, 1, ""), "qwen3-tied-fp32", ModelConfig{})
	s := tokens(t, m, script(2, 20, m.Info.Vocab))
	was := fingerprint(t, s)
	n := m.Info.Hidden
	bad := make([]float32, n*n)
	bad[n+3] = float32(math.NaN())
	stopped, cancel := context.WithCancel(bg)
	cancel()
	for _, c := range []struct {
		name  string
		ctx   context.Context
		cfg   LatentConfig
		cause error
		code  string
		text  string
	}{
		{"negative steps", bg, LatentConfig{Steps: -1}, ErrReason, "latent_steps", "-1 latent steps"},
		{"negative limit", bg, LatentConfig{Max: -1}, ErrReason, "latent_limit", "-1 latent rows"},
		{"over the limit", bg, LatentConfig{Steps: 5, Max: 4}, ErrReason, "latent_limit", "5 latent steps, and only 4"},
		{"context", bg, LatentConfig{Steps: 490, Request: []int32{1, 2, 3}}, ErrContext, "context_limit", "20 rows, 3 of the request and 490"},
		{"request", bg, LatentConfig{Steps: 1, Request: []int32{1, 512}}, ErrRequest, "request_vocab", "id 1 of the request is 512"},
		{"alignment of another size", bg, LatentConfig{Steps: 1, Align: bad[1:]}, ErrReason, "align", "one row per output"},
		{"alignment with a NaN", bg, LatentConfig{Steps: 1, Align: bad}, ErrReason, "align", "row 1, column 3"},
		{"cancelled", stopped, LatentConfig{Steps: 3}, context.Canceled, "", ""},
		{"cancelled with a request", stopped, LatentConfig{Steps: 3, Request: []int32{1}}, context.Canceled, "", ""},
	} {
		got, err := LatentMass(c.ctx, s, c.cfg)
		if got != nil || !errors.Is(err, c.cause) || Code(err) != c.code || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v (%s)", c.name, err, Code(err))
		}
	}
	if _, err := (Latent{Steps: 1}).Reason(bg, s, 0, nil); !errors.Is(err, ErrReason) {
		t.Errorf("a limit of no rows: %v", err)
	}
	none, err := LatentMass(bg, s, LatentConfig{})
	if err != nil {
		t.Fatal(err)
	}
	was.same(t, none)
	none.Release()
	was.same(t, s)
}

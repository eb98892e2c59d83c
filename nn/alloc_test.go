//go:build !race

package nn_test

import "testing"

// TestStepAllocations: decoding inside a page allocates nothing.
func TestStepAllocations(t *testing.T) {
	for _, model := range models {
		g := newRig(t, model, 0)
		s := g.scripts(model)[0]
		r := g.runner(64)
		g.must(r.Append(bg, s.rows[:64]))
		g.must(r.Step(bg, s.rows[64].Token)) // the page, and scratch for one row
		g.must(r.Step(bg, s.rows[65].Token)) // the second recurrent bank
		i := 66
		n := testing.AllocsPerRun(60, func() {
			if err := r.Step(bg, s.rows[i].Token); err != nil {
				t.Fatal(err)
			}
			i++
		})
		if n != 0 {
			t.Errorf("%s: %v allocations per step, want 0", model, n)
		}
		g.same(model, r.Logits(), s.logits[i-1])
	}
}

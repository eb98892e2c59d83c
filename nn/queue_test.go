package nn

import (
	"slices"
	"testing"

	"samebit/state"
)

// Sequences that decode out of step keep a row in every pass; a prompt chunk as
// long as a pass must get its turn all the same, and then they theirs.
func TestBatcherStarvesNobody(t *testing.T) {
	b := &Batcher{rows: 8}
	ask := func(rows int) *job {
		j := &job{seq: &Seq{In: make([]state.Row, rows)}}
		b.queue = append(b.queue, j)
		return j
	}
	first, prompt := ask(1), ask(8)
	if got := b.next(nil); !slices.Equal(got, []*job{first}) {
		t.Fatalf("the first pass takes %d jobs, want the decoding one", len(got))
	}
	second := ask(1)
	if got := b.next(nil); !slices.Equal(got, []*job{prompt}) {
		t.Fatal("the prompt was passed over again")
	}
	for range 9 {
		ask(1)
	}
	if got := b.next(nil); len(got) != 8 || got[0] != second {
		t.Fatalf("the pass after the prompt takes %d jobs, want 8, the oldest first", len(got))
	}
	late := ask(2)
	if got := b.next(nil); len(got) != 3 || got[2] != late {
		t.Fatalf("the last pass takes %d jobs, want two rows and a chunk", len(got))
	}
	if len(b.queue) != 0 {
		t.Errorf("%d jobs are left", len(b.queue))
	}
}

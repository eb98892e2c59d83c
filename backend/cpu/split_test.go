package cpu_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/tensor"
)

// However a decode pass divides heads and key blocks among the workers, its bits are
// those of one worker: sequences of very different lengths, and more or fewer heads than
// workers.
func TestSplitHeads(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	floats := func(dim ...int) tensor.Tensor {
		n := 1
		for _, d := range dim {
			n *= d
		}
		v := make([]float32, n)
		for i := range v {
			v[i] = rng.Float32()*2 - 1
		}
		x, err := tensor.New(tensor.Bytes(tensor.AsBytes(v)), 0, tensor.F32, dim...)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	const d, group = 16, 2
	lengths := [][]int{{511}, {512}, {1700}, {600, 40}, {40, 2500}, {1200, 600, 3000}, {1, 900, 900, 900, 64}}
	for _, heads := range []int{1, 2, 3, 5} {
		for _, l := range lengths {
			segs := make([]backend.Seg, len(l))
			for i, past := range l {
				segs[i] = backend.Seg{Row: i, Rows: 1, Slot: past, Pos: past}
				for range past/backend.Page + 1 {
					segs[i].KV = append(segs[i].KV, floats(2, heads, backend.Page, d))
				}
			}
			q := floats(len(l), heads*group, d)
			attend := func(threads int) []byte {
				dev := open(t, cpu.Config{Threads: threads})
				s, err := dev.NewStream()
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				out := floats(len(l), heads*group, d)
				s.Attention(out, q, s.Plan(segs), 0, 0.25, 0)
				if err := s.Sync(); err != nil {
					t.Fatal(err)
				}
				b, _ := out.Raw()
				return b
			}
			want := attend(1)
			for threads := 2; threads <= 5; threads++ {
				t.Run(fmt.Sprintf("heads=%d/past=%v/threads=%d", heads, l, threads), func(t *testing.T) {
					if string(attend(threads)) != string(want) {
						t.Error("other bits than with one worker")
					}
				})
			}
		}
	}
}

package cpu

import (
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"testing"

	"samebit/backend"
	"samebit/tensor"
)

// TestPackQueue: of weights that are packed together the parts that are told of are all
// bytes, each once, whatever the values turn out to be, and each weight is that of Pack.
func TestPackQueue(t *testing.T) {
	cases := []struct {
		n, k int
		dt   tensor.DType
		wide int // value that is no bf16; -1: none
		why  string
	}{
		{1, 1, tensor.F32, -1, "one value"},
		{1057, 1030, tensor.F32, -1, "more than a huge page of bf16"},
		{1057, 1030, tensor.F32, 0, "known to be float32 before"},
		{1057, 1030, tensor.F32, 600_000, "found to be float32 on the way"},
		{70, 1025, tensor.F32, 70*1025 - 1, "found to be float32 at the end"},
		{333, 514, tensor.BF16, -1, "bf16, several panels at a time"},
		{95, 256, tensor.Q4_K, -1, "blocks, many panels at a time"},
		{3001, 1500, tensor.F32, -1, "a mapping of its own"},
	}
	type part struct{ i, j int }
	for _, threads := range []int{1, 3} {
		d, err := New(Config{Threads: threads})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		add, pack := d.PackQueue()
		for _, together := range []int{1, 3, len(cases)} {
			for cases := range slices.Chunk(cases, together) {
				var mu sync.Mutex
				xs, got, parts := make([]tensor.Tensor, len(cases)), make([]backend.Weight, len(cases)), make([][]part, len(cases))
				for c, tc := range cases {
					raw := make([]byte, tc.n*tc.dt.Bytes(tc.k))
					for i := 0; i < len(raw)-3; i += 4 {
						binary.LittleEndian.PutUint16(raw[i+2:], uint16(0x3c00+i%509))
					}
					if tc.wide >= 0 {
						raw[4*tc.wide] = 1
					}
					if xs[c], err = tensor.New(tensor.Bytes(raw), 0, tc.dt, tc.n, tc.k); err == nil {
						got[c], err = add(xs[c], backend.UseLinear, func(i, j int) {
							mu.Lock()
							defer mu.Unlock()
							parts[c] = append(parts[c], part{i, j})
						})
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				if err := pack(); err != nil {
					t.Fatal(err)
				}
				for c, tc := range cases {
					want, err := d.Pack(xs[c], backend.UseLinear)
					if err != nil {
						t.Fatal(err)
					}
					g, w := got[c].(*weight), want.(*weight)
					if g.narrowed != w.narrowed || g.narrowed != (tc.dt == tensor.F32 && tc.wide < 0) || !slices.Equal(g.panels, w.panels) {
						t.Errorf("%s, %d threads, %d together: narrowed %v and %v, or other panels", tc.why, threads, together, g.narrowed, w.narrowed)
					}
					slices.SortFunc(parts[c], func(a, b part) int { return a.i - b.i })
					at := 0
					for _, p := range parts[c] {
						if p.i != at || p.j <= at {
							t.Fatalf("%s, %d threads, %d together: part %v follows byte %d", tc.why, threads, together, p, at)
						}
						at = p.j
					}
					if at != tc.n*tc.dt.Bytes(tc.k) {
						t.Errorf("%s, %d threads, %d together: told of %d bytes", tc.why, threads, together, at)
					}
					d.Unpack(got[c])
					d.Unpack(want)
				}
			}
		}
		if err := pack(); err != nil {
			t.Errorf("nothing to pack: %v", err)
		}
	}
}

// TestPackQueueRefuses: what cannot be packed is refused when it is added and disturbs
// nothing else, and what was added may be given up before it is packed.
func TestPackQueueRefuses(t *testing.T) {
	d, err := New(Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	add, pack := d.PackQueue()
	x, err := tensor.FromF32(make([]float32, 40*8), 40, 8)
	if err != nil {
		t.Fatal(err)
	}
	given, err := add(x, backend.UseLinear, nil)
	if err != nil {
		t.Fatal(err)
	}
	if w, err := add(x, 0, nil); err == nil || w != nil {
		t.Errorf("no use: %v, %v", w, err)
	}
	d.Unpack(given) // not packed yet
	if err := pack(); err != nil {
		t.Fatal(err)
	}
	if given.Bytes() == 0 {
		t.Error("not packed")
	}
	d.Unpack(given)
	d.Close()
	if w, err := add(x, backend.UseLinear, nil); !errors.Is(err, backend.ErrClosed) || w != nil {
		t.Errorf("after Close: %v, %v", w, err)
	}
}

package cpu

import (
	"encoding/binary"
	"slices"
	"sync"
	"testing"

	"samebit/backend"
	"samebit/tensor"
)

// TestPackRead: the parts that are told of are all bytes, each once, whatever the
// values turn out to be, and the weight is that of Pack.
func TestPackRead(t *testing.T) {
	for _, threads := range []int{1, 3} {
		d, err := New(Config{Threads: threads})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		for _, c := range []struct {
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
		} {
			raw := make([]byte, c.n*c.dt.Bytes(c.k))
			for i := 0; i < len(raw)-3; i += 4 {
				binary.LittleEndian.PutUint16(raw[i+2:], uint16(0x3c00+i%509))
			}
			if c.wide >= 0 {
				raw[4*c.wide] = 1
			}
			x, err := tensor.New(tensor.Bytes(raw), 0, c.dt, c.n, c.k)
			if err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			var parts [][2]int
			got, err := d.PackRead(x, backend.UseLinear, func(i, j int) {
				mu.Lock()
				defer mu.Unlock()
				parts = append(parts, [2]int{i, j})
			})
			if err != nil {
				t.Fatal(err)
			}
			want, err := d.Pack(x, backend.UseLinear)
			if err != nil {
				t.Fatal(err)
			}
			g, w := got.(*weight), want.(*weight)
			if g.narrowed != w.narrowed || g.narrowed != (c.dt == tensor.F32 && c.wide < 0) || !slices.Equal(g.panels, w.panels) {
				t.Errorf("%s, %d threads: narrowed %v and %v, or other panels", c.why, threads, g.narrowed, w.narrowed)
			}
			slices.SortFunc(parts, func(a, b [2]int) int { return a[0] - b[0] })
			at := 0
			for _, p := range parts {
				if p[0] != at || p[1] <= at {
					t.Fatalf("%s, %d threads: part %v follows byte %d", c.why, threads, p, at)
				}
				at = p[1]
			}
			if at != len(raw) {
				t.Errorf("%s, %d threads: told of %d bytes of %d", c.why, threads, at, len(raw))
			}
			d.Unpack(got)
			d.Unpack(want)
		}
	}
}

package archive

import (
	"slices"

	"samebit/internal/canon"
)

// PowerTable is a table that a device keeps in memory M: per scale the decay to the
// powers below N, a power of two, and then the gains.
type PowerTable[M any] struct {
	decay, gain []float32
	N           int
	Mem         M
}

// PowerTables are those of a stream, oldest first.
type PowerTables[M any] []*PowerTable[M]

// mostPowers bounds the tables that are kept.
const mostPowers = 64

// Get is the table of some decays and gains for at least n powers. Where there is none,
// store writes one to its memory, which may be that of another or not made yet; nil if
// it fails.
func (l *PowerTables[M]) Get(decay, gain []float32, n int, store func(mem *M, values []float32) bool) *PowerTable[M] {
	var t *PowerTable[M]
	for _, o := range *l {
		if slices.Equal(o.decay, decay) && slices.Equal(o.gain, gain) {
			t = o
		}
	}
	switch {
	case t != nil && t.N >= n:
		return t
	case t == nil && len(*l) < mostPowers:
		t = new(PowerTable[M])
		*l = append(*l, t)
	case t == nil:
		t = (*l)[0]
		*l = append((*l)[1:], t)
	}
	t.decay, t.gain, t.N = nil, nil, 0 // found again only once it is whole
	size := 2
	for size < n {
		size *= 2
	}
	v := make([]float32, 0, len(decay)*size+len(gain))
	for _, r := range decay {
		for i := range size {
			v = append(v, float32(canon.Power(float64(r), i)))
		}
	}
	if v = append(v, gain...); !store(&t.Mem, v) {
		return nil
	}
	t.decay, t.gain, t.N = slices.Clone(decay), slices.Clone(gain), size
	return t
}

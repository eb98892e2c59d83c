package nn

import (
	"samebit/backend"
	"samebit/tensor"
)

// arena hands out scratch tensors from slabs that are allocated once and reused
// by every later pass.
type arena struct {
	dev   backend.Device
	slabs []tensor.Buffer
	at    Mark
	err   error
}

// Mark is a moment in the life of an arena.
type Mark struct{ slab, off int }

const slabBytes = 4 << 20

// get returns an invalid tensor when memory ran out; the op it is given to fails.
func (a *arena) get(dt tensor.DType, dim ...int) tensor.Tensor {
	n := 4
	for _, d := range dim {
		n *= d
	}
	n = (n + 255) &^ 255
	for ; a.at.slab < len(a.slabs); a.at = (Mark{a.at.slab + 1, 0}) {
		if a.slabs[a.at.slab].Len()-a.at.off >= n {
			break
		}
	}
	if a.at.slab == len(a.slabs) {
		b, err := a.dev.Alloc(max(n, slabBytes))
		if err != nil {
			a.err = err
			return tensor.Tensor{}
		}
		a.slabs = append(a.slabs, b)
	}
	t, err := tensor.New(a.slabs[a.at.slab], a.at.off, dt, dim...)
	if err != nil {
		a.err = err
		return tensor.Tensor{}
	}
	a.at.off += n
	return t
}

func (a *arena) mark() Mark     { return a.at }
func (a *arena) release(m Mark) { a.at = m }

func (a *arena) close() {
	for _, b := range a.slabs {
		a.dev.Free(b)
	}
	a.slabs, a.at = nil, Mark{}
}

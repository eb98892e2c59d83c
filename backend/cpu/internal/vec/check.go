package vec

import (
	"fmt"
	"math"
)

// Check tries the two properties of the machine that the contract's bits rest
// on: subnormals are numbers and FMA rounds once (numerics.md 1). A backend
// calls it before it claims to be exact.
func (k *Kernels) Check() error {
	for _, e := range []struct {
		a, b, c, want uint32
		fault         string
	}{
		{0x00000003, 0x3f000000, 0x00000000, 0x00000002, "subnormal numbers are flushed to zero; clear FTZ and DAZ (MXCSR) or FZ (FPCR) in this process"},
		{0x33800800, 0x3f7ff001, 0x3f800000, 0x3f800001, "FMA rounds twice; choose another instruction set"},
	} {
		var y, a, b [16]float32 // as many as the widest vector has lanes
		for i := range y {
			y[i], a[i], b[i] = math.Float32frombits(e.c), math.Float32frombits(e.a), math.Float32frombits(e.b)
		}
		k.fma(y[:], a[:], b[:])
		for i := range y {
			if got := math.Float32bits(y[i]); got != e.want {
				return fmt.Errorf("vec: checking %v: FMA(%08x, %08x, %08x) = %08x, want %08x: %s", k.Set, e.a, e.b, e.c, got, e.want, e.fault)
			}
		}
	}
	return nil
}

package cuda

import (
	"errors"
	"testing"

	"samebit/backend"
	"samebit/backend/cuda/emu"
	"samebit/backend/cuda/kernels"
)

// Not even a mistake in a launch reaches a kernel of the fast mode on an exact
// device.
func TestFunctionRefusesFast(t *testing.T) {
	for _, fast := range []bool{false, true} {
		d, err := New(Config{Driver: emu.New(emu.Config{Capability: 80}), Fast: fast})
		if err != nil {
			t.Fatal(err)
		}
		for dt, k := range fastKernels {
			if _, err := d.function(k.module, k.small); fast && err != nil || !fast && !errors.Is(err, backend.ErrUnsupported) {
				t.Errorf("fast %v, %v: %v", fast, dt, err)
			}
		}
		if n := len(fastKernels) + 1; n != len(kernels.Fast()) {
			t.Errorf("products of %d types and attention, modules %v", n-1, kernels.Fast())
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

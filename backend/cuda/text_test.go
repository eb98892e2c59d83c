package cuda_test

import (
	"testing"

	"samebit/backend/cuda/emu"
	"samebit/backend/cuda/kernels"
)

// The text that drivers get leaves no rounding and no fusing to an assembler.
func TestText(t *testing.T) {
	l := kernels.Modules()
	if len(l) < 30 {
		t.Fatalf("only %d modules: %v", len(l), l)
	}
	for _, m := range l {
		if err := emu.Check(string(kernels.PTX(m))); err != nil {
			t.Errorf("%s: %v", m, err)
		}
	}
	if kernels.PTX("none") != nil {
		t.Error("there is a module that nobody wrote")
	}
}

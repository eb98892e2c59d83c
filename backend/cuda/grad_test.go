package cuda_test

import (
	"testing"

	"samebit/backend/backendtest"
	"samebit/backend/cuda/emu"
)

// Gradients have the bits of package ref.
func TestGrad(t *testing.T) {
	backendtest.RunCases(t, open(t, emu.Config{}), backendtest.GradCases())
}

func TestGradErrors(t *testing.T) { backendtest.GradErrors(t, open(t, emu.Config{})) }

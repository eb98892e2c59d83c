package opencl_test

import (
	"testing"

	"samebit/backend/backendtest"
)

func TestGrad(t *testing.T) { backendtest.RunCases(t, device(t), backendtest.GradCases()) }

func TestGradErrors(t *testing.T) { backendtest.GradErrors(t, device(t)) }

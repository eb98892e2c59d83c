package ref_test

import (
	"testing"

	"samebit/backend"
	"samebit/backend/backendtest"
	"samebit/backend/ref"
)

// The suite compares package ref with itself here: what is tested are the laws,
// the guards and what must be refused.
func TestRef(t *testing.T) {
	backendtest.Run(t, func(*testing.T) backend.Device { return ref.New() })
}

func TestGoldens(t *testing.T) {
	backendtest.Goldens(t, ref.New(), "../../testdata/numerics")
	backendtest.Worked(t, ref.New())
}

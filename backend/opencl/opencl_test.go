package opencl_test

import (
	"errors"
	"testing"

	"samebit/backend"
	"samebit/backend/backendtest"
	"samebit/backend/opencl"
	"samebit/internal/testenv"
)

// device opens the first device, or skips the test where there is none.
func device(t testing.TB) *opencl.Device {
	t.Helper()
	d, err := opencl.New(opencl.Config{})
	if errors.Is(err, backend.ErrNoDevice) || errors.Is(err, backend.ErrUnsupported) {
		testenv.Missing(t, "opencl", err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func TestOpenCL(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) backend.Device { return device(t) })
}

func TestGoldens(t *testing.T) {
	dev := device(t)
	backendtest.Goldens(t, dev, "../../testdata/numerics")
	backendtest.Worked(t, dev)
}

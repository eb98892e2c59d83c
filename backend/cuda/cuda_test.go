package cuda_test

import (
	"testing"

	"samebit/backend"
	"samebit/backend/backendtest"
	"samebit/backend/cuda"
	"samebit/backend/cuda/emu"
)

func open(t testing.TB, cfg emu.Config) *cuda.Device {
	t.Helper()
	d, err := cuda.New(cuda.Config{Driver: emu.New(cfg), Name: "cuda:emu"})
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

func TestEmu(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) backend.Device { return open(t, emu.Config{}) })
}

func TestGoldens(t *testing.T) {
	dev := open(t, emu.Config{})
	backendtest.Goldens(t, dev, "../../testdata/numerics")
	backendtest.Worked(t, dev)
}

var _ backend.Device = (*cuda.Device)(nil)

package cuda_test

import (
	"math"
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

// watched is an open device and its emulator.
func watched(t testing.TB) (*cuda.Device, *emu.Device) {
	t.Helper()
	drv := emu.New(emu.Config{Workers: 2})
	d, err := cuda.New(cuda.Config{Driver: drv, Name: "cuda:emu"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, err := drv.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	watch := ctx.(*emu.Device)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if n := watch.Held(); n != 0 {
			t.Errorf("%d objects of the driver were not given back", n)
		}
		if err := watch.Close(); err != nil {
			t.Error(err)
		}
	})
	return d, watch
}

var inf = math.Inf(1)

func TestEmu(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) backend.Device { return open(t, emu.Config{}) })
}

func TestGoldens(t *testing.T) {
	dev := open(t, emu.Config{})
	backendtest.Goldens(t, dev, "../../testdata/numerics")
	backendtest.Worked(t, dev)
}

var _ backend.Device = (*cuda.Device)(nil)

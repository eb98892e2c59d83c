package cuda_test

import (
	"math"
	"testing"

	"samebit/backend"
	"samebit/backend/backendtest"
	"samebit/backend/cuda"
	"samebit/backend/cuda/driver"
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
	return watchedAs(t, emu.Config{Workers: 2})
}

func watchedAs(t testing.TB, cfg emu.Config) (*cuda.Device, *emu.Device) {
	t.Helper()
	drv := emu.New(cfg)
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

// A launch builds its parameters in reused memory: a decoded token allocates
// nothing here. What the emulator allocates when it runs is left out.
func TestNoAllocations(t *testing.T) {
	dev, err := cuda.New(cuda.Config{Driver: lazy{emu.New(emu.Config{})}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	for _, op := range backendtest.Decode(t, dev) {
		op.Run()
		if n := testing.AllocsPerRun(20, op.Run); n != 0 {
			t.Errorf("%s allocates %v times", op.Name, n)
		}
		if err := op.Err(); err != nil {
			t.Fatalf("%s: %v", op.Name, err)
		}
	}
}

// lazy is a driver that drops launches and copies from the second run of each on.
type lazy struct{ driver.Driver }

func (l lazy) Open(i int) (driver.Context, error) {
	c, err := l.Driver.Open(i)
	return &lazyContext{Context: c}, err
}

type lazyContext struct {
	driver.Context
	launches int
}

func (c *lazyContext) Launch(s driver.Stream, f driver.Function, l driver.Launch, p []byte) error {
	if c.launches++; c.launches > 1 { // the first is the probe
		return nil
	}
	return c.Context.Launch(s, f, l, p)
}
func (c *lazyContext) CopyIn(s driver.Stream, dst driver.Ptr, src []byte) error {
	if c.launches > 0 {
		return nil
	}
	return c.Context.CopyIn(s, dst, src)
}
func (c *lazyContext) CopyOut(s driver.Stream, dst []byte, src driver.Ptr) error {
	if c.launches > 1 {
		return nil
	}
	return c.Context.CopyOut(s, dst, src)
}
func (c *lazyContext) Copy(driver.Stream, driver.Ptr, driver.Ptr, int) error { return nil }
func (c *lazyContext) LaunchGraph(driver.Stream, driver.Exec) error          { return nil }
func (c *lazyContext) Sync(s driver.Stream) error {
	if c.launches > 1 {
		return nil
	}
	return c.Context.Sync(s)
}

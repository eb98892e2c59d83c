//go:build linux && (amd64 || arm64)

package driver_test

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ebitengine/purego"

	"samebit/backend"
	"samebit/backend/cuda/driver"
	"samebit/backend/cuda/driver/drivertest"
	"samebit/internal/testenv"
)

// newFake builds and loads the library of testdata/fakecuda.c, at path.
func newFake(t *testing.T) (f *drivertest.Fake, path string) {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		testenv.Missing(t, "gcc", "install gcc to build testdata/fakecuda.c")
	}
	path = filepath.Join(t.TempDir(), "libfakecuda.so")
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-Wall", "-Werror", "-o", path, filepath.Join("testdata", "fakecuda.c")).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	h, err := purego.Dlopen(path, purego.RTLD_NOW)
	if err == nil {
		f, err = drivertest.Bind(h)
	}
	if err != nil {
		t.Fatal(err)
	}
	return f, path
}

// at opens the library at path.
func at(path string) func() (driver.Driver, error) {
	return func() (driver.Driver, error) { return driver.Load(path) }
}

func TestCalls(t *testing.T) {
	f, path := newFake(t)
	f.CheckCalls(t, at(path), drivertest.Calls)
}

func TestEveryFailure(t *testing.T) {
	f, path := newFake(t)
	f.CheckFailures(t, at(path))
}

// Results become causes with remedies.
func TestCauses(t *testing.T) {
	f, path := newFake(t)
	for code, want := range map[driver.Result]error{
		driver.OutOfMemory: driver.ErrOutOfMemory, driver.IllegalAddress: driver.ErrLost, driver.LaunchFailed: driver.ErrLost, driver.ECCUncorrectable: driver.ErrLost, driver.NoDevice: driver.ErrNoDevice,
		driver.UnsupportedPTX: driver.ErrOldDriver, driver.DriverMismatch: driver.ErrOldDriver, driver.NoBinaryForGPU: driver.ErrOldDevice, driver.DeviceUnavailable: driver.ErrBusy,
		driver.InvalidPTX: driver.ErrKernel, driver.InvalidHandle: driver.ErrClosed,
	} {
		f.FailAt(25, code)
		if err := drivertest.Exercise(at(path)); !errors.Is(err, want) {
			t.Errorf("result %d is %v, want %v", code, err, want)
		}
	}
	f.FailAt(25, 12345)
	err := drivertest.Exercise(at(path))
	for _, c := range []error{driver.ErrOutOfMemory, driver.ErrLost, driver.ErrNoDevice, driver.ErrOldDriver, driver.ErrKernel} {
		if errors.Is(err, c) {
			t.Errorf("the unknown result 12345 became %v", c)
		}
	}
}

func TestMachines(t *testing.T) {
	f, path := newFake(t)
	f.Machine(11030, 1)
	if _, err := driver.Load(path); !errors.Is(err, driver.ErrOldDriver) || !strings.Contains(err.Error(), "11.3") {
		t.Errorf("an old driver: %v", err)
	}
	f.Machine(12040, 0)
	d, err := driver.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Count(); !errors.Is(err, driver.ErrNoDevice) {
		t.Errorf("no device: %v", err)
	}
	f.Machine(12040, 1)
	if _, err := d.Open(1); !errors.Is(err, driver.ErrNoDevice) || !errors.Is(err, backend.ErrNoDevice) {
		t.Errorf("device 1 of 1: %v", err)
	}
	v, err := d.Info(0)
	if err != nil {
		t.Fatal(err)
	}
	want := driver.Info{Name: "Fake 7", Memory: 5 << 30, Major: 1075, Minor: 1076, Multiprocs: 1016, WarpSize: 1010, MaxThreads: 1001, Shared: 1008, SharedOptin: 1097,
		ClockKHz: 1013, MemoryClockKHz: 1036, MemoryBusBits: 1037, L2: 1038}
	if v != want {
		t.Errorf("Info is %+v, want %+v", v, want)
	}
	if d.Version() != 12040 {
		t.Errorf("Version is %d", d.Version())
	}
	if _, err := driver.Load(filepath.Join(t.TempDir(), "missing.so")); !errors.Is(err, driver.ErrNoDriver) || !errors.Is(err, backend.ErrNoDevice) {
		t.Errorf("a missing library: %v", err)
	}
	if _, err := driver.Load("libc.so.6"); !errors.Is(err, driver.ErrOldDriver) {
		t.Errorf("a library of another kind: %v", err)
	}
	c, err := d.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.LoadModule("bad", []byte("nonsense")); !errors.Is(err, driver.ErrKernel) || !strings.Contains(err.Error(), "ptxas says no") {
		t.Errorf("a bad module: %v", err)
	}
	if _, err := c.Alloc(2 << 20); !errors.Is(err, driver.ErrOutOfMemory) || !strings.Contains(err.Error(), "2097152 bytes") {
		t.Errorf("too much memory: %v", err)
	}
	if err := c.Launch(1, 1, driver.Launch{}, make([]byte, driver.MaxParams+1)); !errors.Is(err, driver.ErrKernel) {
		t.Errorf("too many parameters: %v", err)
	}
}

// Nothing is allocated where a token is decoded.
func TestLaunchAllocatesNothing(t *testing.T) {
	_, path := newFake(t)
	d, err := driver.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	c, err := d.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	h, err := c.AllocHost(64)
	if err != nil {
		t.Fatal(err)
	}
	var v driver.Params
	l := driver.Launch{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1}}
	n := testing.AllocsPerRun(200, func() {
		v.Reset().Ptr(p).Int32(3)
		if c.Launch(s, 0xf00, l, v.Bytes()) != nil || c.LaunchGraph(s, 7) != nil || c.CopyIn(s, p, h) != nil || c.CopyOut(s, h, p) != nil ||
			c.Copy(s, p, p+32, 32) != nil || c.Fill(s, p, 0, 64) != nil || c.Sync(s) != nil {
			t.Fatal("a call failed")
		}
	})
	if n != 0 && !raced {
		t.Errorf("%v allocations for seven calls", n)
	}
}

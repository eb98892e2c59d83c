//go:build linux && (amd64 || arm64)

package driver_test

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"samebit/backend"
	"samebit/backend/cuda/driver"
	"samebit/backend/cuda/driver/drivertest"
	"samebit/internal/testenv"
)

// fake is the library of testdata/fakecuda.c.
type fake struct {
	path                          string
	reset, machine, held, theNote uintptr
}

func newFake(t *testing.T) *fake {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		testenv.Missing(t, "gcc", "install gcc to build testdata/fakecuda.c")
	}
	f := &fake{path: filepath.Join(t.TempDir(), "libfakecuda.so")}
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-Wall", "-Werror", "-o", f.path, filepath.Join("testdata", "fakecuda.c")).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	h, err := purego.Dlopen(f.path, purego.RTLD_NOW)
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]*uintptr{"fake_reset": &f.reset, "fake_machine": &f.machine, "fake_held": &f.held, "fake_notes": &f.theNote} {
		if *p, err = purego.Dlsym(h, name); err != nil {
			t.Fatal(err)
		}
	}
	f.failAt(0, 0)
	return f
}

// failAt begins anew; the call with that number, from 1, fails.
func (f *fake) failAt(call int, with driver.Result) {
	purego.SyscallN(f.reset, uintptr(call), uintptr(with))
}

var kinds = []string{"contexts", "modules", "device memory", "host memory", "streams", "events", "graphs", "ready graphs"}

// leaks are the kinds of things of which some are held, or were freed too often.
func (f *fake) leaks() map[string]int {
	out := map[string]int{}
	for i, k := range kinds {
		if n, _, _ := purego.SyscallN(f.held, uintptr(i)); n != 0 {
			out[k] = int(n)
		}
	}
	return out
}

func (f *fake) notes() []string {
	b := make([]byte, 1<<20)
	n, _, _ := purego.SyscallN(f.theNote, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	return strings.Split(strings.TrimSpace(string(b[:n])), "\n")
}

// exercise makes every call of the library at path once.
func exercise(path string) error {
	return drivertest.Exercise(func() (driver.Driver, error) { return driver.Load(path) })
}

// The library receives the calls in order, with these values and this image.
func TestCalls(t *testing.T) {
	f := newFake(t)
	if err := exercise(f.path); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range f.notes() {
		if n != "cuCtxSetCurrent 0x1010" {
			got = append(got, n)
		}
	}
	for i := range max(len(got), len(drivertest.Calls)) {
		g, w := "", ""
		if i < len(got) {
			g = got[i]
		}
		if i < len(drivertest.Calls) {
			w = drivertest.Calls[i]
		}
		if g != w {
			t.Fatalf("call %d is %q, want %q", i, g, w)
		}
	}
	if l := f.leaks(); len(l) > 0 {
		t.Errorf("held at the end: %v", l)
	}
}

// Whatever call fails, its error comes out with its name and code, and all that
// was made is given back, but for the thing whose own release failed.
func TestEveryFailure(t *testing.T) {
	f := newFake(t)
	if err := exercise(f.path); err != nil {
		t.Fatal(err)
	}
	all := f.notes()
	for i, call := range all {
		f.failAt(i+1, driver.OutOfMemory)
		err := exercise(f.path)
		name, _, _ := strings.Cut(call, " ")
		var e *driver.Error
		if !errors.As(err, &e) {
			t.Fatalf("call %d (%s) failed, the error is %v", i+1, call, err)
		}
		if e.Call != name || e.Code != driver.OutOfMemory || e.Name != "FAKE_ERROR_2" {
			t.Errorf("call %d (%s) failed, the error is %v", i+1, call, err)
		}
		if !errors.Is(err, driver.ErrOutOfMemory) || !errors.Is(err, backend.ErrNoMemory) {
			t.Errorf("%v is no ErrOutOfMemory", err)
		}
		// A release that fails, or that is not reached because the context could
		// not be made current for it, leaves its thing.
		releases := strings.Contains(call, "Destroy") || strings.Contains(call, "Free") || strings.Contains(call, "Unload") || strings.Contains(call, "Release")
		if name == "cuCtxSetCurrent" {
			next := all[i+1]
			releases = strings.Contains(next, "Destroy") || strings.Contains(next, "Free") || strings.Contains(next, "Unload")
		}
		want := 0
		if releases {
			want = 1
		}
		if l := f.leaks(); len(l) != want {
			t.Errorf("call %d (%s) failed, held at the end: %v", i+1, call, l)
		}
	}
	if len(all) < 80 {
		t.Errorf("only %d calls were made", len(all))
	}
}

// Results become causes with remedies.
func TestCauses(t *testing.T) {
	f := newFake(t)
	for code, want := range map[driver.Result]error{
		driver.OutOfMemory: driver.ErrOutOfMemory, driver.IllegalAddress: driver.ErrLost, driver.LaunchFailed: driver.ErrLost, driver.ECCUncorrectable: driver.ErrLost, driver.NoDevice: driver.ErrNoDevice,
		driver.UnsupportedPTX: driver.ErrOldDriver, driver.DriverMismatch: driver.ErrOldDriver, driver.NoBinaryForGPU: driver.ErrOldDevice, driver.DeviceUnavailable: driver.ErrBusy,
		driver.InvalidPTX: driver.ErrKernel, driver.InvalidHandle: driver.ErrClosed,
	} {
		f.failAt(25, code)
		if err := exercise(f.path); !errors.Is(err, want) {
			t.Errorf("result %d is %v, want %v", code, err, want)
		}
	}
	f.failAt(25, 12345)
	err := exercise(f.path)
	for _, c := range []error{driver.ErrOutOfMemory, driver.ErrLost, driver.ErrNoDevice, driver.ErrOldDriver, driver.ErrKernel} {
		if errors.Is(err, c) {
			t.Errorf("the unknown result 12345 became %v", c)
		}
	}
}

func TestMachines(t *testing.T) {
	f := newFake(t)
	machine := func(version, devices int) { purego.SyscallN(f.machine, uintptr(version), uintptr(devices)) }
	machine(11030, 1)
	if _, err := driver.Load(f.path); !errors.Is(err, driver.ErrOldDriver) || !strings.Contains(err.Error(), "11.3") {
		t.Errorf("an old driver: %v", err)
	}
	machine(12040, 0)
	d, err := driver.Load(f.path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Count(); !errors.Is(err, driver.ErrNoDevice) {
		t.Errorf("no device: %v", err)
	}
	machine(12040, 1)
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
	f := newFake(t)
	d, err := driver.Load(f.path)
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

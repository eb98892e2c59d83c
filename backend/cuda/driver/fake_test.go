//go:build linux && (amd64 || arm64)

package driver

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"

	"samebit/backend"
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
func (f *fake) failAt(call int, with Result) {
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

// exercise makes every call once and gives everything back, also when one fails.
func exercise(path string) (err error) {
	d, err := Load(path)
	if err != nil {
		return err
	}
	if _, err := d.Count(); err != nil {
		return err
	}
	if _, err := d.Info(0); err != nil {
		return err
	}
	c, err := d.Open(0)
	if err != nil {
		return err
	}
	undo := func(f func() error) { err = errors.Join(err, f()) }
	defer undo(c.Close)
	if _, _, err := c.MemInfo(); err != nil {
		return err
	}
	m, err := c.LoadModule("m", []byte(".entry k"))
	if err != nil {
		return err
	}
	defer undo(func() error { return c.UnloadModule(m) })
	k, err := c.Function(m, "k")
	if err != nil {
		return err
	}
	if _, err := c.FuncInfo(k); err != nil {
		return err
	}
	if err := c.SetMaxShared(k, 70000); err != nil {
		return err
	}
	p, err := c.Alloc(24)
	if err != nil {
		return err
	}
	defer undo(func() error { return c.Free(p) })
	h, err := c.AllocHost(24)
	if err != nil {
		return err
	}
	defer undo(func() error { return c.FreeHost(h) })
	s, err := c.NewStream()
	if err != nil {
		return err
	}
	defer undo(func() error { return c.CloseStream(s) })
	e, err := c.NewEvent()
	if err != nil {
		return err
	}
	defer undo(func() error { return c.CloseEvent(e) })
	for _, f := range []func() error{
		func() error { return c.Fill(s, p, 9, 24) },
		func() error { return c.CopyIn(s, p, []byte{1, 2, 3, 4, 5, 6, 7, 8}) },
		func() error { return c.Copy(s, p+16, p, 8) },
		func() error { return c.CopyOut(s, h, p) },
		func() error { return c.Sync(s) },
		func() error { return c.Record(e, s) },
		func() error { return c.BeginCapture(s) },
		func() error {
			var v Params
			v.Ptr(0x1122334455667788).Float32(1).Int32(-2).Uint64(3)
			return c.Launch(s, k, Launch{Grid: [3]uint32{2, 3, 4}, Block: [3]uint32{32, 2, 1}, Shared: 512}, v.Bytes())
		},
	} {
		if err := f(); err != nil {
			return err
		}
	}
	if string(h[:10]) != "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x09" || string(h[16:]) != "\x01\x02\x03\x04\x05\x06\x07\x08" {
		return errors.New("the copies went wrong")
	}
	took, err := c.Elapsed(e, e)
	if err != nil {
		return err
	}
	if took != 1500*time.Microsecond {
		return errors.New("the time is wrong")
	}
	g, err := c.EndCapture(s)
	if err != nil {
		return err
	}
	defer undo(func() error { return c.CloseGraph(g) })
	x, err := c.Instantiate(g)
	if err != nil {
		return err
	}
	defer undo(func() error { return c.CloseExec(x) })
	return c.LaunchGraph(s, x)
}

// wantCalls is what exercise makes, without the calls that make the context
// current before each that needs it.
var wantCalls = []string{
	"cuInit 0", "cuDriverGetVersion", "cuDeviceGetCount",
	"cuDeviceGet 0", "cuDeviceGetName 255 7", "cuDeviceTotalMem 7",
	"cuDeviceGetAttribute 1 7", "cuDeviceGetAttribute 8 7", "cuDeviceGetAttribute 10 7", "cuDeviceGetAttribute 13 7", "cuDeviceGetAttribute 16 7",
	"cuDeviceGetAttribute 36 7", "cuDeviceGetAttribute 37 7", "cuDeviceGetAttribute 38 7", "cuDeviceGetAttribute 75 7", "cuDeviceGetAttribute 76 7", "cuDeviceGetAttribute 97 7",
	"cuDeviceGet 0", "cuDevicePrimaryCtxRetain 7", "cuMemGetInfo",
	"cuModuleLoadDataEx 2 5 6 8191 [.entry k]", "cuModuleGetFunction 0x1020 k",
	"cuFuncGetAttribute 0 0xf00", "cuFuncGetAttribute 1 0xf00", "cuFuncGetAttribute 3 0xf00", "cuFuncGetAttribute 4 0xf00", "cuFuncSetAttribute 0xf00 8 70000",
	"cuMemAlloc 24", "cuMemAllocHost 24", "cuStreamCreate 1", "cuEventCreate 0",
	"cuMemsetD8Async 9 24 0x1030", "cuMemcpyHtoDAsync 8 0x1030", "cuMemcpyDtoDAsync 8 0x1030", "cuMemcpyDtoHAsync 24 0x1030", "cuStreamSynchronize 0x1030",
	"cuEventRecord 0x1040 0x1030", "cuStreamBeginCapture 0x1030 2",
	"cuLaunchKernel 0xf00 grid 2 3 4 block 32 2 1 shared 512 0x1030 params 88776655443322110000803ffeffffff0300000000000000",
	"cuEventElapsedTime 0x1040 0x1040", "cuStreamEndCapture 0x1030", "cuGraphInstantiateWithFlags 0x1050 0", "cuGraphLaunch 0x1060 0x1030",
	"cuGraphExecDestroy 0x1060", "cuGraphDestroy 0x1050", "cuEventDestroy 0x1040", "cuStreamDestroy 0x1030", "cuMemFreeHost", "cuMemFree", "cuModuleUnload 0x1020",
	"cuDevicePrimaryCtxRelease 7",
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
	for i := range max(len(got), len(wantCalls)) {
		g, w := "", ""
		if i < len(got) {
			g = got[i]
		}
		if i < len(wantCalls) {
			w = wantCalls[i]
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
		f.failAt(i+1, OutOfMemory)
		err := exercise(f.path)
		name, _, _ := strings.Cut(call, " ")
		var e *Error
		if !errors.As(err, &e) {
			t.Fatalf("call %d (%s) failed, the error is %v", i+1, call, err)
		}
		if e.Call != name || e.Code != OutOfMemory || e.Name != "FAKE_ERROR_2" {
			t.Errorf("call %d (%s) failed, the error is %v", i+1, call, err)
		}
		if !errors.Is(err, ErrOutOfMemory) || !errors.Is(err, backend.ErrNoMemory) {
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
	for code, want := range map[Result]error{
		OutOfMemory: ErrOutOfMemory, IllegalAddress: ErrLost, LaunchFailed: ErrLost, ECCUncorrectable: ErrLost, NoDevice: ErrNoDevice,
		UnsupportedPTX: ErrOldDriver, DriverMismatch: ErrOldDriver, NoBinaryForGPU: ErrOldDevice, DeviceUnavailable: ErrBusy,
		InvalidPTX: ErrKernel, InvalidHandle: ErrClosed,
	} {
		f.failAt(25, code)
		if err := exercise(f.path); !errors.Is(err, want) {
			t.Errorf("result %d is %v, want %v", code, err, want)
		}
	}
	f.failAt(25, 12345)
	err := exercise(f.path)
	for _, c := range []error{ErrOutOfMemory, ErrLost, ErrNoDevice, ErrOldDriver, ErrKernel} {
		if errors.Is(err, c) {
			t.Errorf("the unknown result 12345 became %v", c)
		}
	}
}

func TestMachines(t *testing.T) {
	f := newFake(t)
	machine := func(version, devices int) { purego.SyscallN(f.machine, uintptr(version), uintptr(devices)) }
	machine(11030, 1)
	if _, err := Load(f.path); !errors.Is(err, ErrOldDriver) || !strings.Contains(err.Error(), "11.3") {
		t.Errorf("an old driver: %v", err)
	}
	machine(12040, 0)
	d, err := Load(f.path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Count(); !errors.Is(err, ErrNoDevice) {
		t.Errorf("no device: %v", err)
	}
	machine(12040, 1)
	if _, err := d.Open(1); !errors.Is(err, ErrNoDevice) || !errors.Is(err, backend.ErrNoDevice) {
		t.Errorf("device 1 of 1: %v", err)
	}
	v, err := d.Info(0)
	if err != nil {
		t.Fatal(err)
	}
	want := Info{Name: "Fake 7", Memory: 5 << 30, Major: 1075, Minor: 1076, Multiprocs: 1016, WarpSize: 1010, MaxThreads: 1001, Shared: 1008, SharedOptin: 1097,
		ClockKHz: 1013, MemoryClockKHz: 1036, MemoryBusBits: 1037, L2: 1038}
	if v != want {
		t.Errorf("Info is %+v, want %+v", v, want)
	}
	if d.Version() != 12040 {
		t.Errorf("Version is %d", d.Version())
	}
	if _, err := Load(filepath.Join(t.TempDir(), "missing.so")); !errors.Is(err, ErrNoDriver) || !errors.Is(err, backend.ErrNoDevice) {
		t.Errorf("a missing library: %v", err)
	}
	if _, err := Load("libc.so.6"); !errors.Is(err, ErrOldDriver) {
		t.Errorf("a library of another kind: %v", err)
	}
	c, err := d.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.LoadModule("bad", []byte("nonsense")); !errors.Is(err, ErrKernel) || !strings.Contains(err.Error(), "ptxas says no") {
		t.Errorf("a bad module: %v", err)
	}
	if _, err := c.Alloc(2 << 20); !errors.Is(err, ErrOutOfMemory) || !strings.Contains(err.Error(), "2097152 bytes") {
		t.Errorf("too much memory: %v", err)
	}
	if err := c.Launch(1, 1, Launch{}, make([]byte, MaxParams+1)); !errors.Is(err, ErrKernel) {
		t.Errorf("too many parameters: %v", err)
	}
}

// Nothing is allocated where a token is decoded.
func TestLaunchAllocatesNothing(t *testing.T) {
	f := newFake(t)
	d, err := Load(f.path)
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
	var v Params
	l := Launch{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1}}
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

//go:build gorgoniacu && cgo && linux

package cudriver

import (
	"errors"
	"strings"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"samebit/backend"
	"samebit/backend/cuda/driver"
	"samebit/backend/cuda/driver/drivertest"
)

// fake is the library that the test is linked with, made of the fake driver of
// backend/cuda/driver (scripts/cudriver-check.sh).
type fake struct{ reset, held, notes uintptr }

func newFake(t *testing.T) fake {
	t.Helper()
	var f fake
	for name, p := range map[string]*uintptr{"fake_reset": &f.reset, "fake_held": &f.held, "fake_notes": &f.notes} {
		var err error
		if *p, err = purego.Dlsym(purego.RTLD_DEFAULT, name); err != nil {
			t.Skipf("linked with a driver that is no fake: %v", err)
		}
	}
	f.failAt(0, 0)
	return f
}

func (f fake) failAt(call int, with driver.Result) {
	purego.SyscallN(f.reset, uintptr(call), uintptr(with))
}

func (f fake) leaks() (n int) {
	for kind := range 8 {
		k, _, _ := purego.SyscallN(f.held, uintptr(kind))
		n += max(int(k), -int(k))
	}
	return n
}

func (f fake) calls() []string {
	b := make([]byte, 1<<20)
	n, _, _ := purego.SyscallN(f.notes, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	return strings.Split(strings.TrimSpace(string(b[:n])), "\n")
}

// The library receives the calls that the binding without cgo makes, with the
// same values. cu calls cuInit before main and asks for one byte more of a name.
func TestCalls(t *testing.T) {
	f := newFake(t)
	if err := drivertest.Exercise(New); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range f.calls() {
		if c != "cuCtxSetCurrent 0x1010" {
			got = append(got, c)
		}
	}
	want := drivertest.Calls[1:]
	for i := range max(len(got), len(want)) {
		g, w := "", ""
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = strings.Replace(want[i], "cuDeviceGetName 255", "cuDeviceGetName 256", 1)
		}
		if g != w {
			t.Fatalf("call %d is %q, want %q", i, g, w)
		}
	}
	if n := f.leaks(); n > 0 {
		t.Errorf("%d things are held at the end", n)
	}
}

// Whatever call fails, its error comes out with its name, code and cause.
func TestEveryFailure(t *testing.T) {
	f := newFake(t)
	if err := drivertest.Exercise(New); err != nil {
		t.Fatal(err)
	}
	all := f.calls()
	for i, call := range all {
		f.failAt(i+1, driver.OutOfMemory)
		err := drivertest.Exercise(New)
		name, _, _ := strings.Cut(call, " ")
		var e *driver.Error
		if !errors.As(err, &e) {
			t.Fatalf("call %d (%s) failed, the error is %v", i+1, call, err)
		}
		if name == "cuDriverGetVersion" { // cu hides this number
			continue
		}
		if e.Call != name || e.Code != driver.OutOfMemory || e.Name != "FAKE_ERROR_2" || !errors.Is(err, backend.ErrNoMemory) {
			t.Errorf("call %d (%s) failed, the error is %v", i+1, call, err)
		}
	}
	if len(all) < 80 {
		t.Errorf("only %d calls were made", len(all))
	}
}

func TestRefusals(t *testing.T) {
	f := newFake(t)
	d, err := New()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Open(1); !errors.Is(err, driver.ErrNoDevice) {
		t.Errorf("device 1 of 1: %v", err)
	}
	c, err := d.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.LoadModule("bad", []byte("nonsense")); !errors.Is(err, driver.ErrKernel) || !strings.Contains(err.Error(), "ptxas says no") {
		t.Errorf("a bad module: %v", err)
	}
	if _, err := c.Alloc(2 << 20); !errors.Is(err, driver.ErrOutOfMemory) || !strings.Contains(err.Error(), "2097152 bytes") {
		t.Errorf("too much memory: %v", err)
	}
	if err := c.Launch(1, 1, driver.Launch{}, make([]byte, driver.MaxParams+1)); !errors.Is(err, driver.ErrKernel) {
		t.Errorf("too many parameters: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if n := f.leaks(); n > 0 {
		t.Errorf("%d things are held at the end", n)
	}
}

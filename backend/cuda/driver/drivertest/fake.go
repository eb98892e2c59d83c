//go:build linux && (amd64 || arm64)

package drivertest

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"samebit/backend"
	"samebit/backend/cuda/driver"
)

// Fake drives the library of driver/testdata/fakecuda.c, which writes down the calls
// that it gets.
type Fake struct{ reset, machine, held, notes uintptr }

// Bind finds the fake's own functions in a library that is loaded (purego.RTLD_DEFAULT:
// in the program). It fails if that is no fake.
func Bind(library uintptr) (*Fake, error) {
	f := new(Fake)
	for name, p := range map[string]*uintptr{"fake_reset": &f.reset, "fake_machine": &f.machine, "fake_held": &f.held, "fake_notes": &f.notes} {
		var err error
		if *p, err = purego.Dlsym(library, name); err != nil {
			return nil, err
		}
	}
	f.FailAt(0, 0)
	return f, nil
}

// FailAt begins anew; the call with that number, from 1, fails.
func (f *Fake) FailAt(call int, with driver.Result) {
	purego.SyscallN(f.reset, uintptr(call), uintptr(with))
}

// Machine sets the version of the driver and the number of devices.
func (f *Fake) Machine(version, devices int) {
	purego.SyscallN(f.machine, uintptr(version), uintptr(devices))
}

var kinds = []string{"contexts", "modules", "device memory", "host memory", "streams", "events", "graphs", "ready graphs"}

// Leaks are the kinds of things of which some are held, or were freed too often.
func (f *Fake) Leaks() map[string]int {
	out := map[string]int{}
	for i, k := range kinds {
		if n, _, _ := purego.SyscallN(f.held, uintptr(i)); n != 0 {
			out[k] = int(n)
		}
	}
	return out
}

// Notes are the calls since FailAt.
func (f *Fake) Notes() []string {
	b := make([]byte, 1<<20)
	n, _, _ := purego.SyscallN(f.notes, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	return strings.Split(strings.TrimSpace(string(b[:n])), "\n")
}

// CheckCalls demands that the library receives these calls in order, with their values
// and the module's image, and that nothing is held in the end.
func (f *Fake) CheckCalls(t *testing.T, open func() (driver.Driver, error), want []string) {
	t.Helper()
	if err := Exercise(open); err != nil {
		t.Fatal(err)
	}
	got := slices.DeleteFunc(f.Notes(), func(n string) bool { return n == "cuCtxSetCurrent 0x1010" })
	for i := range max(len(got), len(want)) {
		g, w := "", ""
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Fatalf("call %d is %q, want %q", i, g, w)
		}
	}
	if l := f.Leaks(); len(l) > 0 {
		t.Errorf("held at the end: %v", l)
	}
}

// CheckFailures demands that, whatever call fails, its error comes out with its name,
// code and cause, and all that was made is given back, but for the thing whose own
// release failed. Calls named hidden need only fail.
func (f *Fake) CheckFailures(t *testing.T, open func() (driver.Driver, error), hidden ...string) {
	t.Helper()
	if err := Exercise(open); err != nil {
		t.Fatal(err)
	}
	all := f.Notes()
	for i, call := range all {
		f.FailAt(i+1, driver.OutOfMemory)
		err := Exercise(open)
		name, _, _ := strings.Cut(call, " ")
		var e *driver.Error
		if !errors.As(err, &e) {
			t.Fatalf("call %d (%s) failed, the error is %v", i+1, call, err)
		}
		if !slices.Contains(hidden, name) {
			if e.Call != name || e.Code != driver.OutOfMemory || e.Name != "FAKE_ERROR_2" {
				t.Errorf("call %d (%s) failed, the error is %v", i+1, call, err)
			}
			if !errors.Is(err, driver.ErrOutOfMemory) || !errors.Is(err, backend.ErrNoMemory) {
				t.Errorf("%v is no ErrOutOfMemory", err)
			}
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
		if l := f.Leaks(); len(l) != want {
			t.Errorf("call %d (%s) failed, held at the end: %v", i+1, call, l)
		}
	}
	if len(all) < 80 {
		t.Errorf("only %d calls were made", len(all))
	}
}

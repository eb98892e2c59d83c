//go:build gorgoniacu && cgo && linux

package cudriver

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ebitengine/purego"

	"samebit/backend/cuda/driver"
	"samebit/backend/cuda/driver/drivertest"
)

// newFake is the library that the test is linked with, made of the fake driver of
// backend/cuda/driver (scripts/cudriver-check.sh).
func newFake(t *testing.T) *drivertest.Fake {
	t.Helper()
	f, err := drivertest.Bind(purego.RTLD_DEFAULT)
	if err != nil {
		t.Skipf("linked with a driver that is no fake: %v", err)
	}
	return f
}

// The calls are those of the binding without cgo, with the same values. cu calls
// cuInit before main and asks for one byte more of a name.
func TestCalls(t *testing.T) {
	want := slices.Clone(drivertest.Calls[1:])
	for i, c := range want {
		want[i] = strings.Replace(c, "cuDeviceGetName 255", "cuDeviceGetName 256", 1)
	}
	newFake(t).CheckCalls(t, New, want)
}

// cu hides the number of a failed cuDriverGetVersion.
func TestEveryFailure(t *testing.T) {
	newFake(t).CheckFailures(t, New, "cuDriverGetVersion")
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
	if l := f.Leaks(); len(l) > 0 {
		t.Errorf("held at the end: %v", l)
	}
}

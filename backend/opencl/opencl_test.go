package opencl_test

import (
	"errors"
	"math"
	"strings"
	"sync"
	"testing"

	"samebit/backend"
	"samebit/backend/backendtest"
	"samebit/backend/opencl"
	"samebit/internal/testenv"
	"samebit/tensor"
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

// Streams of one device may run at the same time.
func TestConcurrentStreams(t *testing.T) {
	dev := device(t)
	var wg sync.WaitGroup
	for g := range 3 {
		wg.Go(func() { backendtest.Laws(t, dev, 1000+10*g, 1) })
	}
	wg.Wait()
}

// Every op runs again and again with the shapes of a decoded token.
func TestDecode(t *testing.T) {
	for _, op := range backendtest.Decode(t, device(t)) {
		for range 3 {
			op.Run()
		}
		if err := op.Err(); err != nil {
			t.Fatalf("%s: %v", op.Name, err)
		}
	}
}

func TestNoMemory(t *testing.T) {
	if _, err := device(t).Alloc(math.MaxInt >> 1); !errors.Is(err, backend.ErrNoMemory) {
		t.Errorf("Alloc of half the address space gives %v, want ErrNoMemory", err)
	}
}

// What was given back fails instead of being read.
func TestGivenBack(t *testing.T) {
	d := device(t)
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.Alloc(16)
	if err != nil {
		t.Fatal(err)
	}
	x, _ := tensor.New(b, 0, tensor.F32, 2, 2)
	v, _ := tensor.FromF32(make([]float32, 4), 2, 2)
	w, err := d.Pack(v, backend.UseLinear)
	if err != nil {
		t.Fatal(err)
	}
	d.Unpack(w)
	d.Unpack(w)
	if s.Linear(x, x, w); s.Sync() == nil {
		t.Error("a weight is usable after Unpack")
	}
	s.Reset()
	d.Free(b)
	d.Free(b)
	if s.Add(x, x, x); s.Sync() == nil {
		t.Error("a buffer is usable after Free")
	}
}

// A failure that only the device sees stops what was queued behind it, and comes
// before failures that the host saw meanwhile.
func TestDeviceFailsFirst(t *testing.T) {
	d := device(t)
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	wide, _ := tensor.FromF32([]float32{1, 2, 3, 4}, 2, 2)
	table, err := d.Pack(wide, backend.UseEmbed)
	if err != nil {
		t.Fatal(err)
	}
	alloc := func(dt tensor.DType, dim ...int) tensor.Tensor {
		b, err := d.Alloc(64)
		if err != nil {
			t.Fatal(err)
		}
		x, err := tensor.New(b, 0, dt, dim...)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	ids, x, y := alloc(tensor.I32, 2), alloc(tensor.F32, 2, 2), alloc(tensor.F32, 2, 2)
	s.Write(ids, tensor.AsBytes([]int32{1, 7}))
	s.Write(y, tensor.AsBytes([]float32{5, 6, 7, 8}))
	s.Embed(x, table, ids)
	s.Add(y, y, y)
	s.Write(y, make([]byte, 16))
	s.Add(y, y, tensor.Tensor{})
	if err := s.Sync(); err == nil || !strings.Contains(err.Error(), "id 7 of row 1 is outside a table of 2") {
		t.Errorf("the id gives %v", err)
	}
	s.Reset()
	got := make([]float32, 4)
	s.Read(tensor.AsBytes(got), y)
	if err := s.Sync(); err != nil || got[0] != 5 || got[3] != 8 {
		t.Errorf("ops behind a failure wrote %v (%v)", got, err)
	}
}

func TestDevices(t *testing.T) {
	d := device(t)
	list, err := opencl.Devices()
	if err != nil || len(list) == 0 {
		t.Fatalf("%d devices, %v", len(list), err)
	}
	if f := list[0]; f.Err != nil || !strings.Contains(d.Info().Model, f.Model) || !strings.Contains(d.Info().Model, f.Platform) {
		t.Errorf("the first device is %+v, the open one %+v", f, d.Info())
	}
	if _, err := opencl.New(opencl.Config{Platform: "nobody's"}); !errors.Is(err, backend.ErrNoDevice) {
		t.Errorf("a platform of nobody gives %v", err)
	}
}

func TestGoldens(t *testing.T) {
	dev := device(t)
	backendtest.Goldens(t, dev, "../../testdata/numerics")
	backendtest.Worked(t, dev)
}

package calib

import (
	"testing"

	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/backend/cuda"
	"samebit/backend/cuda/emu"
	"samebit/backend/opencl"
	"samebit/qcc"
)

// others are those of this machine that calibrate, besides the processor.
func others(t *testing.T) []backend.Device {
	t.Helper()
	emulated, err := cuda.New(cuda.Config{Driver: emu.New(emu.Config{}), Name: "cuda:emu"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { emulated.Close() })
	list := []backend.Device{emulated}
	if cl, err := opencl.New(opencl.Config{}); err == nil {
		t.Cleanup(func() { cl.Close() })
		list = append(list, cl)
	} else {
		t.Logf("not on OpenCL: %v", err)
	}
	return list
}

// Every device makes the adapter that the processor makes, of archives and of
// gated-delta memories.
func TestSameBitsOnDevices(t *testing.T) {
	if testing.Short() {
		t.Skip("the emulator takes ten seconds")
	}
	for _, m := range []struct {
		name, model string
		delta       bool
	}{{"archive", dense, false}, {"archive of a hybrid", hybrid, false}, {"delta", dense, true}} {
		run := func(dev backend.Device) *Report {
			t.Helper()
			d := load(t, dev, m.model)
			o := few(2)
			o.Chunks = 1
			a := adapter(t, d, func(c *qcc.Config) {
				if m.delta {
					*c, _ = qcc.DeltaConfig(d)
					c.Window, c.AddressRank = 8, 2
				}
			})
			_, rep, err := Run(t.Context(), dev, d, a, Data{texts(1, d.Vocab, 1, 20), texts(2, d.Vocab, 1, 16)}, o)
			if err != nil {
				t.Fatalf("%s on %s: %v", m.name, dev.Name(), err)
			}
			return rep
		}
		want := run(device(t, cpu.Config{Threads: 1}))
		for _, dev := range others(t) {
			if got := run(dev); got.Hash != want.Hash || *got.After != *want.After {
				t.Errorf("%s on %s: hash %s and %+v, the processor's are %s and %+v", m.name, dev.Name(), got.Hash, *got.After, want.Hash, *want.After)
			}
		}
	}
}

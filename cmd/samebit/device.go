package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/backend/cuda"
	"samebit/backend/cuda/emu"
	"samebit/backend/opencl"
	"samebit/backend/ref"
)

const deviceHelp = "cpu, cuda:0 (an NVIDIA GPU by number), cuda:emu (its kernels emulated, slow), opencl (or opencl:1, another of its devices), or ref (slow plain loops)"

func deviceNames() []cobra.Completion {
	return []cobra.Completion{"cpu", "cuda:0", "cuda:emu", "opencl", "ref"}
}

// ordinal is the number in "cuda:0" or "opencl:1".
func ordinal(name, kind string) (int, bool) {
	n, ok := strings.CutPrefix(name, kind+":")
	i, err := strconv.Atoi(n)
	return i, ok && err == nil && i >= 0
}

// checkDevice refuses names that no device has.
func checkDevice(name string) error {
	for _, kind := range []string{"cuda", "opencl"} {
		if _, ok := ordinal(name, kind); ok {
			return nil
		}
	}
	return oneOf("device", deviceNames(), name)
}

// newDevice opens a device by name. SAMEBIT_CPU chooses among the processor's
// kernels, for comparing them.
func newDevice(name string, threads int) (backend.Device, error) {
	switch name {
	case "ref":
		return ref.New(), nil
	case "cuda:emu":
		return cuda.New(cuda.Config{Driver: emu.New(emu.Config{Memory: 8 << 30}), Name: name})
	case "opencl":
		return opencl.New(opencl.Config{})
	}
	if n, ok := ordinal(name, "cuda"); ok {
		return cuda.New(cuda.Config{Ordinal: n})
	}
	if n, ok := ordinal(name, "opencl"); ok {
		return opencl.New(opencl.Config{Device: n})
	}
	impl := os.Getenv("SAMEBIT_CPU")
	d, err := cpu.New(cpu.Config{Threads: threads, Impl: impl})
	if err != nil {
		if impl != "" {
			return nil, fmt.Errorf("SAMEBIT_CPU=%s: %w", impl, err)
		}
		return nil, err
	}
	return d, nil
}

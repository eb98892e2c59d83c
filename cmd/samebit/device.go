package main

import (
	"cmp"
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
	"samebit/tensor"
)

const deviceHelp = "cpu, cuda:0 (an NVIDIA GPU by number), cuda:emu (its kernels emulated, slow; either with ,fast at its end: tensor cores, not bit-exact), opencl (or opencl:1, another of its devices), or ref (slow plain loops)"

func deviceNames() []cobra.Completion {
	return []cobra.Completion{"cpu", "cuda:0", "cuda:0,fast", "cuda:emu", "cuda:emu,fast", "opencl", "ref"}
}

// kvFlag is how keys and values are stored.
type kvFlag struct{ name string }

func (f *kvFlag) register(c *cobra.Command) {
	c.Flags().StringVar(&f.name, "kv", "f32", "keep keys and values as `TYPE`: f32, or bf16, which rounds them once: half the memory, other logits, on every path the same")
	// the only error is a flag that does not exist
	_ = c.RegisterFlagCompletionFunc("kv", cobra.FixedCompletions([]cobra.Completion{"f32", "bf16"}, cobra.ShellCompDirectiveNoFileComp))
}

// check refuses values before anything is loaded.
func (f *kvFlag) check(bounded *boundedFlags) error {
	if f.dtype() == tensor.BF16 && bounded.wanted() {
		return usagef("--kv bf16 excludes --adapter and --window, whose windows are f32: bound the memory with --sieve, or leave --kv out")
	}
	return oneOf("kv", []string{"f32", "bf16"}, cmp.Or(f.name, "f32"))
}

// dtype is the type, F32 for commands without the flag.
func (f *kvFlag) dtype() tensor.DType {
	if f.name == "bf16" {
		return tensor.BF16
	}
	return tensor.F32
}

// ordinal is the number in "cuda:0" or "opencl:1".
func ordinal(name, kind string) (int, bool) {
	n, ok := strings.CutPrefix(name, kind+":")
	i, err := strconv.Atoi(n)
	return i, ok && err == nil && i >= 0
}

// fastMark ends the names of CUDA devices in fast mode.
const fastMark = ",fast"

// withoutFast is the name of the exact device, and whether the other was meant.
func withoutFast(name string) (exact string, fast bool) {
	if strings.HasPrefix(name, "cuda:") {
		return strings.CutSuffix(name, fastMark)
	}
	return name, false
}

// exactDevice refuses, for commands that promise bits, devices that give others.
func exactDevice(command, name string) error {
	if exact, fast := withoutFast(name); fast {
		return usagef("%s: --device %s is not bit-exact, and %s promises bits: say --device %s", command, name, command, exact)
	}
	return nil
}

// checkDevice refuses names that no device has.
func checkDevice(name string) error {
	name, _ = withoutFast(name)
	for _, kind := range []string{"cuda", "opencl"} {
		if _, ok := ordinal(name, kind); ok {
			return nil
		}
	}
	return oneOf("device", deviceNames(), name)
}

// newDevice opens a device by name. SAMEBIT_CPU chooses among the processor's
// kernels, for comparing them. A device that is not exact is announced on standard
// error.
func newDevice(name string, threads int) (backend.Device, error) {
	name, fast := withoutFast(name)
	if fast {
		fmt.Fprintf(os.Stderr, "samebit: warning: %s%s is not bit-exact: products and attention of many rows run in bfloat16 on tensor cores\n", name, fastMark)
	}
	switch name {
	case "ref":
		return ref.New(), nil
	case "cuda:emu":
		capability := 75
		if fast {
			capability = 80
		}
		return cuda.New(cuda.Config{Driver: emu.New(emu.Config{Memory: 8 << 30, Capability: capability}), Name: name, Fast: fast})
	case "opencl":
		return opencl.New(opencl.Config{})
	}
	if n, ok := ordinal(name, "cuda"); ok {
		return cuda.New(cuda.Config{Ordinal: n, Fast: fast})
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

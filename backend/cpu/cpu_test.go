package cpu_test

import (
	"testing"

	"samebit/backend"
	"samebit/backend/backendtest"
	"samebit/backend/cpu"
)

func open(t testing.TB, cfg cpu.Config) *cpu.Device {
	t.Helper()
	d, err := cpu.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func TestCPU(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) backend.Device { return open(t, cpu.Config{Threads: 2}) })
}

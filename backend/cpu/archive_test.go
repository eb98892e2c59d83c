package cpu_test

import (
	"fmt"
	"slices"
	"testing"

	"samebit/backend/backendtest"
	"samebit/backend/cpu"
)

// Kernels and threads must not change a bit of archive attention.
func TestArchive(t *testing.T) {
	impls := cpu.Impls()
	for _, impl := range []string{"generic", "neon", "avx2", "avx512"} {
		t.Run(impl, func(t *testing.T) {
			backendtest.Require(t, impl, slices.Contains(impls, impl))
			for _, threads := range []int{1, 2, 3, 8} {
				if testing.Short() && threads != 3 {
					continue
				}
				t.Run(fmt.Sprintf("threads=%d", threads), func(t *testing.T) {
					backendtest.RunCases(t, open(t, cpu.Config{Threads: threads, Impl: impl}), some(impl, backendtest.ArchiveCases()))
				})
			}
		})
	}
}

func TestArchiveErrors(t *testing.T) { backendtest.ArchiveErrors(t, open(t, cpu.Config{Threads: 2})) }

package cuda_test

import (
	"slices"
	"testing"

	"samebit/backend/backendtest"
	"samebit/backend/cuda/kernels"
)

// leastArchive is the share of mutants of archive kernels, in percent, that tests
// must see: less than of the others, since what is known of lengths that are only
// compared is little (docs/cuda.md 5).
const leastArchive = 87

// TestArchiveMutants is TestMutants for windows and archives.
func TestArchiveMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("their cases take long")
	}
	modules := slices.DeleteFunc(kernels.Modules(), func(m string) bool { return !isArchive(m) })
	cases := append(backendtest.ArchiveCases(), backendtest.ArchiveGradCases()...)
	killMutants(t, modules, trials(t, false, cases, archiveForms()), *mutants/2, leastArchive)
}

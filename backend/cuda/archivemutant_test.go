package cuda_test

import (
	"slices"
	"testing"

	"samebit/backend/backendtest"
	"samebit/backend/cuda/kernels"
)

// TestArchiveMutants is TestMutants for windows and archives.
func TestArchiveMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("their cases take long")
	}
	modules := slices.DeleteFunc(kernels.Modules(), func(m string) bool { return !isArchive(m) })
	cases := append(backendtest.ArchiveCases(), backendtest.ArchiveGradCases()...)
	killMutants(t, modules, trials(t, false, cases, archiveForms()), *mutants/2, least)
}

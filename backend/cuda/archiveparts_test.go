package cuda

import (
	"slices"
	"testing"

	"samebit/backend/backendtest"
	"samebit/backend/cuda/emu"
)

// Rows that do not fit the scratch memory are taken one after the other.
func TestArchivePortions(t *testing.T) {
	d, err := New(Config{Driver: emu.New(emu.Config{})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	d.scratch = 1
	cases := slices.DeleteFunc(backendtest.ArchiveCases(), func(c backendtest.Case) bool { return c.Op != "Archive" })
	backendtest.RunCases(t, d, cases)
}

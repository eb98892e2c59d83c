package opencl

import (
	"strings"
	"testing"

	"samebit/backend/backendtest"
	"samebit/backend/opencl/internal/cl"
	"samebit/internal/testenv"
)

// However few rows fit in scratch memory at once, the bits are the same.
func TestPortions(t *testing.T) {
	api, err := cl.Load()
	if err != nil {
		testenv.Missing(t, "opencl", err.Error())
	}
	dev, err := open(api, Config{})
	if err != nil {
		testenv.Missing(t, "opencl", err.Error())
	}
	defer dev.Close()
	defer func(n int) { partBytes = n }(partBytes)
	var cases []backendtest.Case
	for _, c := range append(backendtest.ArchiveCases(), backendtest.Cases()...) {
		if (c.Op == "Archive" || c.Op == "Attention") && strings.HasSuffix(c.Name, "ordinary") {
			cases = append(cases, c)
		}
	}
	if len(cases) < 20 {
		t.Fatalf("only %d cases", len(cases))
	}
	for _, bytes := range []int{1, 64 << 10} {
		partBytes = bytes
		backendtest.RunCases(t, dev, cases)
	}
}

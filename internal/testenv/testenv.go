// Package testenv finds what some tests need and not every machine has.
package testenv

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Missing skips the test because what it needs is not here; it fails the test if
// SAMEBIT_REQUIRE, a comma-separated list, names it.
func Missing(t testing.TB, what, remedy string) {
	t.Helper()
	if slices.Contains(strings.Split(os.Getenv("SAMEBIT_REQUIRE"), ","), what) {
		t.Fatalf("%s is required and missing: %s", what, remedy)
	}
	t.Skipf("%s is missing: %s", what, remedy)
}

// Weights is the path of the small real model, which scripts/fetch-weights.sh
// fetches. Without it the test is skipped ("weights" for SAMEBIT_REQUIRE).
func Weights(t testing.TB) string {
	t.Helper()
	dir, err := os.UserCacheDir()
	if err == nil {
		path := filepath.Join(dir, "samebit", "models", "SmolLM2-135M-Instruct.Q4_1.gguf")
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	Missing(t, "weights", "run scripts/fetch-weights.sh")
	return ""
}

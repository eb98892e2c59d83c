package lockstep_test

import (
	"testing"

	"samebit/backend/backendtest"
	"samebit/backend/lockstep"
	"samebit/backend/ref"
)

// The gradients run on the pair as on any device, and are compared by it.
func TestGrad(t *testing.T) {
	dev := lockstep.New(ref.New(), openCPU(t))
	backendtest.RunCases(t, dev, some(backendtest.GradCases()))
	backendtest.GradErrors(t, dev)
	backendtest.RunCases(t, dev, some(backendtest.ArchiveGradCases()))
	backendtest.ArchiveGradErrors(t, dev)
	seen := map[string]bool{}
	for _, c := range dev.Counts() {
		seen[c.Op] = c.Values > 0 && c.Differing == 0
	}
	for _, op := range []string{"WeightGrad", "AttentionGrad", "AdamW", "ArchiveScanGrad", "GateMixGrad"} {
		if !seen[op] {
			t.Errorf("%s was not compared", op)
		}
	}
}

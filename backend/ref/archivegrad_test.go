package ref_test

import (
	"testing"

	"samebit/backend/backendtest"
	"samebit/backend/ref"
)

func TestArchiveGradGuards(t *testing.T) {
	backendtest.RunCases(t, ref.New(), backendtest.ArchiveGradCases())
}

func TestArchiveGradErrors(t *testing.T) { backendtest.ArchiveGradErrors(t, ref.New()) }

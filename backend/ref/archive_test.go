package ref_test

import (
	"testing"

	"samebit/backend/backendtest"
	"samebit/backend/ref"
)

func TestArchiveGuards(t *testing.T) {
	backendtest.RunCases(t, ref.New(), backendtest.ArchiveCases())
}

func TestArchiveErrors(t *testing.T) { backendtest.ArchiveErrors(t, ref.New()) }

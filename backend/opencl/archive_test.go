package opencl_test

import (
	"testing"

	"samebit/backend/backendtest"
)

func TestArchive(t *testing.T) { backendtest.RunCases(t, device(t), backendtest.ArchiveCases()) }

func TestArchiveErrors(t *testing.T) { backendtest.ArchiveErrors(t, device(t)) }

func TestArchiveGrad(t *testing.T) {
	backendtest.RunCases(t, device(t), backendtest.ArchiveGradCases())
}

func TestArchiveGradErrors(t *testing.T) { backendtest.ArchiveGradErrors(t, device(t)) }

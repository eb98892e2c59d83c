package ref_test

import (
	"testing"

	"samebit/backend/backendtest"
	"samebit/backend/ref"
)

func TestGradMeaning(t *testing.T) { backendtest.GradMeaning(t, ref.New()) }

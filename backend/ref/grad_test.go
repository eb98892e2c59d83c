package ref_test

import (
	"testing"

	"samebit/backend/backendtest"
	"samebit/backend/ref"
)

func TestGradMeaning(t *testing.T) { backendtest.GradMeaning(t, ref.New()) }

func TestGradErrors(t *testing.T) { backendtest.GradErrors(t, ref.New()) }

func TestGradGuards(t *testing.T) { backendtest.RunCases(t, ref.New(), backendtest.GradCases()) }

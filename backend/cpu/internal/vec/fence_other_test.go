//go:build !unix

package vec

import "testing"

func fenced(_ testing.TB, n int) []float32 { return make([]float32, n) }

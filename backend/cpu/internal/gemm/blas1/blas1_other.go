//go:build noasm || (!amd64 && !arm64)

package blas1

import "samebit/backend/cpu/internal/isa"

func chains(isa.Set, *[atOnce]float32, *float32, *float32, int, int) bool { return false }

func rowsAtOnce(isa.Set) bool { return false }

func rows(*[8]float32, *float32, int, *float32, int, int) {}

func axpy(isa.Set, float32, *float32, *float32, int) bool { return false }

func scal(isa.Set, float32, *float32, int) bool { return false }

func sumSq(isa.Set, *[lanes]float32, *float32, int) bool { return false }

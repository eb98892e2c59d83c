//go:build noasm || (!amd64 && !arm64)

package isa

func native() []Set { return nil }

//go:build arm64 && !noasm

package isa

import "golang.org/x/sys/cpu"

func native() []Set {
	if cpu.ARM64.HasASIMD {
		return []Set{NEON}
	}
	return nil
}

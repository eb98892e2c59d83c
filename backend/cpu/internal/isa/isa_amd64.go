//go:build amd64 && !noasm

package isa

import "golang.org/x/sys/cpu"

func native() []Set {
	var s []Set
	x := &cpu.X86
	if x.HasAVX2 && x.HasFMA {
		s = append(s, AVX2)
		if x.HasAVX512F && x.HasAVX512DQ && x.HasAVX512VL && x.HasAVX512BW {
			s = append(s, AVX512)
		}
	}
	return s
}

package host

import "golang.org/x/sys/cpu"

func instructions() map[string]bool {
	x := &cpu.X86
	return map[string]bool{"avx": x.HasAVX, "avx2": x.HasAVX2, "fma": x.HasFMA, "avx512f": x.HasAVX512F, "avx512dq": x.HasAVX512DQ,
		"avx512vl": x.HasAVX512VL, "avx512bw": x.HasAVX512BW, "avx512vnni": x.HasAVX512VNNI, "avx512bf16": x.HasAVX512BF16}
}

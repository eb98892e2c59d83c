//go:build amd64 && !noasm

package isa

var wide = Best() == AVX512 && fullRate(vendor(), signature())

// fullRate judges a processor with AVX-512 by its vendor and the signature that CPUID gives
// in EAX for leaf 1. Intel's have two units of 512 bits. AMD's are that wide from Zen 5 on,
// family 0x1a; Zen 4 (0x19) takes two cycles for each instruction of 512 bits.
func fullRate(vendor string, signature uint32) bool {
	switch vendor {
	case "GenuineIntel":
		return true
	case "AuthenticAMD":
		return family(signature) >= 0x1a
	}
	return false
}

// family of a signature: the base family and, where that is 15, the extended one.
func family(signature uint32) uint32 {
	f := signature >> 8 & 15
	if f == 15 {
		f += signature >> 20 & 0xff
	}
	return f
}

func vendor() string {
	_, b, c, d := cpuid(0)
	var s []byte
	for _, r := range []uint32{b, d, c} {
		s = append(s, byte(r), byte(r>>8), byte(r>>16), byte(r>>24))
	}
	return string(s)
}

func signature() uint32 {
	a, _, _, _ := cpuid(1)
	return a
}

// cpuid runs the CPUID instruction for a leaf, subleaf 0.
func cpuid(leaf uint32) (eax, ebx, ecx, edx uint32)

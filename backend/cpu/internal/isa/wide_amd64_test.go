//go:build amd64 && !noasm

package isa

import "testing"

func TestFullRate(t *testing.T) {
	for _, tt := range []struct {
		vendor    string
		signature uint32
		want      bool
		why       string
	}{
		{"GenuineIntel", 0x000c06f2, true, "Emerald Rapids"},
		{"GenuineIntel", 0x00050654, true, "Skylake server"},
		{"AuthenticAMD", 0x00a10f11, false, "Zen 4, EPYC 9004"},
		{"AuthenticAMD", 0x00a60f12, false, "Zen 4, Ryzen 7000"},
		{"AuthenticAMD", 0x00b00f21, true, "Zen 5, EPYC 9005"},
		{"AuthenticAMD", 0x00b40f40, true, "Zen 5, Ryzen 9000"},
		{"AuthenticAMD", 0x00b20f40, true, "Zen 5, Ryzen AI 300: family alone decides"},
		{"HygonGenuine", 0x00900f01, false, "another vendor"},
		{"", 0, false, "no answer"},
	} {
		if got := fullRate(tt.vendor, tt.signature); got != tt.want {
			t.Errorf("fullRate(%q, %#x) = %v (%s)", tt.vendor, tt.signature, got, tt.why)
		}
	}
}

// A processor names itself and a family; Wide is for AVX512 only.
func TestWide(t *testing.T) {
	if v := vendor(); len(v) != 12 {
		t.Errorf("vendor %q, want 12 bytes", v)
	}
	if signature() == 0 {
		t.Error("no signature")
	}
	if Wide() && Best() != AVX512 {
		t.Errorf("512-bit vectors at full rate, but the best set is %v", Best())
	}
}

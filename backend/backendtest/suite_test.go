package backendtest

import "testing"

func TestRequired(t *testing.T) {
	for _, tt := range []struct {
		list, feature string
		want          bool
	}{
		{"", "avx512", false},
		{"avx512", "avx512", true},
		{"neon, AVX512", "avx512", true},
		{"avx512vl", "avx512", false},
	} {
		if got := required(tt.list, tt.feature); got != tt.want {
			t.Errorf("required(%q, %q) = %v", tt.list, tt.feature, got)
		}
	}
}

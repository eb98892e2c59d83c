package host

import (
	"runtime"
	"testing"
)

func TestRead(t *testing.T) {
	f := Read()
	if f.Processors < 1 || f.MaxProcs < 1 || f.OS != runtime.GOOS || f.Usable() < 0 {
		t.Errorf("Read = %+v", f)
	}
	if f.OS == "linux" && (f.Memory == 0 || f.Available == 0 || f.Available > f.Memory) {
		t.Errorf("memory of a Linux machine: %d of %d bytes available", f.Available, f.Memory)
	}
}

func TestUsable(t *testing.T) {
	for _, tt := range []struct {
		f    Facts
		want int64
		why  string
	}{
		{Facts{}, 0, "unknown"},
		{Facts{Available: 5}, 5, "no limit"},
		{Facts{Available: 5, MemoryLimit: 9, LimitLeft: 3}, 3, "the limit is tighter"},
		{Facts{Available: 5, MemoryLimit: 9, LimitLeft: 7}, 5, "the machine is tighter"},
		{Facts{MemoryLimit: 9, LimitLeft: 7}, 7, "only the limit is known"},
	} {
		if got := tt.f.Usable(); got != tt.want {
			t.Errorf("Usable of %+v = %d, want %d: %s", tt.f, got, tt.want, tt.why)
		}
	}
}

func TestParse(t *testing.T) {
	if got := field("a\t: b: c\nmodel name\t: X Y\n", "model name"); got != "X Y" {
		t.Errorf("field = %q", got)
	}
	for s, want := range map[string]int64{"24684896 kB": 24684896 << 10, "": 0, "-1 kB": 0, "x kB": 0, "99999999999999999 kB": 0} {
		if got := kib(s); got != want {
			t.Errorf("kib(%q) = %d, want %d", s, got, want)
		}
	}
	for s, want := range map[string]float64{"max 100000\n": 0, "150000 100000\n": 1.5, "": 0, "0 0": 0, "NaN 1": 0} {
		if got := quota(s); got != want {
			t.Errorf("quota(%q) = %g, want %g", s, got, want)
		}
	}
}

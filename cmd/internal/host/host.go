// Package host describes the machine under a program: its processor, how much of
// it the program may use, and its memory. What the system does not tell is zero.
package host

import (
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// Facts are what is known. Sizes are in bytes.
type Facts struct {
	OS         string   `json:"os"`
	Arch       string   `json:"arch"`
	Processor  string   `json:"processor,omitempty"` // as its maker calls it
	Features   []string `json:"features"`            // of the instruction set, those that matter here
	Processors int      `json:"processors"`          // that this process may run on
	Installed  int      `json:"installed,omitempty"` // processors of the machine
	Quota      float64  `json:"quota,omitempty"`     // processors' time that a container may use
	MaxProcs   int      `json:"gomaxprocs"`

	Memory      int64 `json:"memory,omitempty"`       // installed
	Available   int64 `json:"available,omitempty"`    // without swapping
	MemoryLimit int64 `json:"memory_limit,omitempty"` // of the container
	LimitLeft   int64 `json:"limit_left,omitempty"`   // of the container's limit
}

// Read asks the system.
func Read() Facts {
	f := Facts{OS: runtime.GOOS, Arch: runtime.GOARCH, Features: features(), Processors: runtime.NumCPU(), MaxProcs: runtime.GOMAXPROCS(0)}
	f.read()
	return f
}

// Usable is the memory that a program can still take, 0 if unknown.
func (f *Facts) Usable() int64 {
	switch {
	case f.MemoryLimit > 0 && (f.Available == 0 || f.LimitLeft < f.Available):
		return f.LimitLeft
	default:
		return f.Available
	}
}

// features lists what kernels may be chosen by.
func features() []string {
	l := []string{}
	for name, has := range instructions() {
		if has {
			l = append(l, name)
		}
	}
	slices.Sort(l)
	return l
}

// field finds "name : value" in text of lines, as /proc writes them.
func field(text, name string) string {
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// kib is a size as /proc/meminfo writes it, in bytes.
func kib(s string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(s, "kB")), 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64>>10 {
		return 0
	}
	return n << 10
}

// quota reads cpu.max of a control group, "max 100000" or "150000 100000".
func quota(s string) float64 {
	f := strings.Fields(s)
	if len(f) != 2 {
		return 0
	}
	q, err1 := strconv.ParseFloat(f[0], 64)
	p, err2 := strconv.ParseFloat(f[1], 64)
	if err1 != nil || err2 != nil || !(q > 0) || !(p > 0) {
		return 0
	}
	return q / p
}

//go:build unix

package bench

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// CPUSeconds is the time this process spent on all processors.
func CPUSeconds() float64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	s := func(t unix.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
	return s(u.Utime) + s(u.Stime)
}

// peakMiB is the largest resident size so far.
func peakMiB() int64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	if runtime.GOOS == "darwin" {
		return int64(u.Maxrss) >> 20
	}
	return int64(u.Maxrss) >> 10
}

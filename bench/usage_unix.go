//go:build unix

package bench

import (
	"bytes"
	"fmt"
	"os"
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

// PeakBytes is how much of this process lay in memory at most so far; 0 where that is
// not known. Linux counts into rusage what lay in memory of the program that started this
// one, so that there the process's own mark is read.
func PeakBytes() int64 {
	if data, err := os.ReadFile("/proc/self/status"); err == nil {
		if _, mark, ok := bytes.Cut(data, []byte("VmHWM:")); ok {
			var kib int64
			if _, err := fmt.Sscan(string(mark), &kib); err == nil {
				return kib << 10
			}
		}
	}
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	if runtime.GOOS == "darwin" {
		return int64(u.Maxrss)
	}
	return int64(u.Maxrss) << 10
}

func peakMiB() int64 { return PeakBytes() >> 20 }

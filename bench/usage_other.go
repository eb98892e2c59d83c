//go:build !unix

package bench

// CPUSeconds is the time this process spent on all processors; 0 where it is not
// known.
func CPUSeconds() float64 { return 0 }

// PeakBytes is how much of this process lay in memory at most so far; 0 where that is
// not known.
func PeakBytes() int64 { return 0 }
func peakMiB() int64   { return 0 }

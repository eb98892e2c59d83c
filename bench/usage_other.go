//go:build !unix

package bench

// CPUSeconds is the time this process spent on all processors; 0 where it is not
// known.
func CPUSeconds() float64 { return 0 }
func peakMiB() int64      { return 0 }

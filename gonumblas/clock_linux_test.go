package gonumblas

import (
	"time"

	"golang.org/x/sys/unix"
)

// now is the processor time of this thread, which other processes do not stop.
func now() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		panic("no thread clock")
	}
	return time.Duration(t.Nano())
}

//go:build !linux

package gonumblas

import "time"

var started = time.Now()

func now() time.Duration { return time.Since(started) }

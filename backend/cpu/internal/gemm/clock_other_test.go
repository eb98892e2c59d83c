//go:build !linux

package gemm

import "time"

var started = time.Now()

func now() time.Duration { return time.Since(started) }

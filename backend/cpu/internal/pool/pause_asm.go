//go:build (amd64 || arm64) && !noasm

package pool

// pause tells the core that this thread is polling.
//
//go:noescape
func pause()

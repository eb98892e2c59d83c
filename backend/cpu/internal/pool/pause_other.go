//go:build noasm || (!amd64 && !arm64)

package pool

func pause() {}

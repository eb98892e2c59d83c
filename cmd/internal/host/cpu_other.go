//go:build !amd64 && !arm64

package host

func instructions() map[string]bool { return nil }

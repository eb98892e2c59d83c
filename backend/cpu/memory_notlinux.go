//go:build unix && !linux

package cpu

func hugePages([]byte) {}

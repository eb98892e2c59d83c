//go:build !unix

package rclc

// sync has nothing to do: these systems journal names and cannot sync folders.
func (d osFolder) sync() error { return nil }

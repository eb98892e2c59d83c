//go:build !unix

package natsbus

// syncFolder does nothing where the system orders names by itself.
func syncFolder(string) error { return nil }

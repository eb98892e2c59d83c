//go:build !windows && (!unix || solaris || illumos || aix)

package natsbus

import "os"

// lockFile does not lock here: nothing in the standard library does.
func lockFile(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
}

//go:build unix

package wholefile

import (
	"errors"
	"os"
)

// Sync makes names durable.
func (d OS) Sync() error {
	f, err := os.Open(string(d))
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

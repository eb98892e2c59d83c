//go:build unix

package rclc

import (
	"errors"
	"os"
)

func (d osFolder) sync() error {
	f, err := os.Open(string(d))
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

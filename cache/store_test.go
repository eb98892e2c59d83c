package cache_test

import (
	"testing"

	"samebit/cache"
	"samebit/cache/cachetest"
)

func TestDiskIsAStore(t *testing.T) {
	cachetest.Run(t, func(t *testing.T) func() cache.Store {
		dir := t.TempDir()
		return func() cache.Store {
			d, err := cache.OpenDisk(dir, 0)
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
	})
}

package natsbus_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"samebit/cache"
	"samebit/natsbus"
)

// A cache of one machine keeps its prefixes in a folder; with a URL instead of
// Dir, machines share them.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "natsbus")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	store, err := natsbus.Open(context.Background(), natsbus.Config{Dir: dir, MaxBytes: 1 << 30})
	if err != nil {
		log.Fatal(err)
	}
	cfg := cache.Config{Store: store} // for cache.New, whose Close closes the store
	fmt.Println(cfg.Store.Bytes())
	if err := store.Close(); err != nil {
		log.Fatal(err)
	}
	// Output: 0
}

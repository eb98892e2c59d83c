//go:build race

package driver_test

// raced reports whether the race detector is on; its pools drop things at random.
const raced = true

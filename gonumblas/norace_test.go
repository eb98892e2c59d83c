//go:build !race

package gonumblas

const raceEnabled = false

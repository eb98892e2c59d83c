//go:build !race

package natsbus

const raceDetector = false

//go:build race

package natsbus

const raceDetector = true

//go:build noasm || !amd64

package isa

const wide = false

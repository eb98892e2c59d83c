//go:build invariants

package state

// invariants poisons freed memory and checks reference counts.
const invariants = true

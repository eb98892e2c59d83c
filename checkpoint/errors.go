package checkpoint

import (
	"errors"
	"fmt"
)

var (
	// ErrCorrupt is wrapped by every error that says a file contradicts itself
	// or its format.
	ErrCorrupt = errors.New("the file is damaged or incomplete: download it again or repeat its conversion")

	// ErrUnsupported is wrapped when a file is well-formed but outside what this
	// package reads: GGUF 1, big-endian or split GGUF, exotic element types.
	ErrUnsupported = errors.New("not supported")

	// ErrNoTensor is wrapped by Tensor for a name that is not in the set.
	ErrNoTensor = errors.New("no such tensor")

	// ErrNoKey is wrapped by the accessors of Meta for an absent key.
	ErrNoKey = errors.New("no such key")
)

// corrupt makes the error for a file that breaks a rule of its format.
func corrupt(file, format string, args ...any) error {
	return fmt.Errorf("checkpoint: open %s: %s: %w", file, fmt.Sprintf(format, args...), ErrCorrupt)
}

// unsupported makes the error for a file that follows rules we do not implement.
func unsupported(file, format string, args ...any) error {
	return fmt.Errorf("checkpoint: open %s: %s: %w", file, fmt.Sprintf(format, args...), ErrUnsupported)
}

// clip shortens a name from a file for use in a message.
func clip(name string) string {
	const limit = 100
	if len(name) <= limit {
		return name
	}
	return name[:limit] + "..."
}

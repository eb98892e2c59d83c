//go:build !unix

package wholefile

// Sync has nothing to do: these systems journal names and cannot sync folders.
func (d OS) Sync() error { return nil }

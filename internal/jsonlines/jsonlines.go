// Package jsonlines reads results that were kept one by one.
package jsonlines

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Read reads one JSON value per line; blank lines are skipped. A last line that was
// cut off is left out, so that a run that was killed can go on. An error names the
// line.
func Read[T any](r io.Reader) ([]T, error) {
	var out []T
	b := bufio.NewReader(r)
	for line := 1; ; line++ {
		text, err := b.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return out, nil // what follows the last newline was cut off
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		if text = bytes.TrimSpace(text); len(text) == 0 {
			continue
		}
		var v T
		if err := json.Unmarshal(text, &v); err != nil {
			return nil, fmt.Errorf("line %d: %w: name another file, or remove the line", line, err)
		}
		out = append(out, v)
	}
}

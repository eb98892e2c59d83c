package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
)

// resumeResults reads what an earlier run left in a file, one JSON object per line, and
// returns what appends to it. A line that was cut off is dropped.
func resumeResults[R any](command, path string, read func(io.Reader) ([]R, error)) (have []R, emit func(R) error, file io.Closer, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("%s: results: %w", command, err)
	}
	b, err := io.ReadAll(f)
	if err == nil {
		have, err = read(bytes.NewReader(b))
	}
	whole := int64(bytes.LastIndexByte(b, '\n') + 1)
	if err == nil {
		err = f.Truncate(whole)
	}
	if err == nil {
		_, err = f.Seek(whole, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return have, func(r R) error { return printJSON(f, r) }, f, nil
}

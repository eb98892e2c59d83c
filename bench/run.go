package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"samebit/internal/jsonlines"
	"samebit/internal/wholefile"
)

// Origin says where and how measurements were made.
type Origin struct {
	Format    int       `json:"bench"` // of the file: 1
	Version   string    `json:"version"`
	OS        string    `json:"os"`
	Arch      string    `json:"arch"`
	Processor string    `json:"processor,omitempty"` // as its maker calls it
	Usable    int       `json:"processors"`          // that the process could run on
	Args      []string  `json:"args"`                // of the command
	Start     time.Time `json:"start"`
}

// Run is what one call of samebit bench measured.
type Run struct {
	Origin  Origin
	Results []Result
}

const runFormat = 1

// WriteOrigin and WriteResult write the lines of a run's file: its origin first, then
// each of its results as one JSON object.
func WriteOrigin(w io.Writer, o Origin) error {
	o.Format = runFormat
	return line(w, o)
}

func WriteResult(w io.Writer, r Result) error { return line(w, r) }

func line(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// Save writes the file as a whole, in the place of one of that name.
func (r *Run) Save(path string) error {
	return wholefile.Write(path, func(w io.Writer) error {
		if err := WriteOrigin(w, r.Origin); err != nil {
			return err
		}
		for i := range r.Results {
			if err := WriteResult(w, r.Results[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// OpenRun is ReadRun of a file; errors name it.
func OpenRun(path string) (*Run, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	defer f.Close()
	r, err := ReadRun(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// ReadRun reads a run's file. It refuses one without results, and results without
// repetitions or with times that no clock gives.
func ReadRun(r io.Reader) (*Run, error) {
	lines, err := jsonlines.Read[json.RawMessage](r)
	if err != nil {
		return nil, fmt.Errorf("bench: not a file that samebit bench --json FILE writes: %w", err)
	}
	run := &Run{}
	if len(lines) == 0 || json.Unmarshal(lines[0], &run.Origin) != nil || run.Origin.Format == 0 {
		return nil, errors.New("bench: no head of a file that samebit bench --json FILE writes")
	}
	if f := run.Origin.Format; f != runFormat {
		return nil, fmt.Errorf("bench: the file has format %d, this program reads %d: measure again, or compare with the program that wrote it", f, runFormat)
	}
	for i, l := range lines[1:] {
		var m Result
		err := json.Unmarshal(l, &m)
		if err == nil {
			err = m.check()
		}
		if err != nil {
			return nil, fmt.Errorf("bench: measurement %d: %w", i+1, err)
		}
		run.Results = append(run.Results, m)
	}
	if len(run.Results) == 0 {
		return nil, errors.New("bench: the file has no measurements: write one with samebit bench --json FILE")
	}
	return run, nil
}

// check refuses results that no measurement gives.
func (r *Result) check() error {
	switch {
	case r.Test == "" || r.Unit == "":
		return errors.New("a measurement without a test or a unit")
	case len(r.Wall) == 0 || len(r.CPU) != len(r.Wall):
		return fmt.Errorf("%s: %d repetitions by the clock and %d by the processor: want as many, and at least one", r.Test, len(r.Wall), len(r.CPU))
	case !(r.Median > 0):
		return fmt.Errorf("%s: a median of %v %s: want a positive one", r.Test, r.Median, r.Unit)
	}
	for i := range r.Wall {
		if !(r.Wall[i] > 0) || !(r.CPU[i] >= 0) {
			return fmt.Errorf("%s: repetition %d took %v s, and %v s of processors: want a positive time", r.Test, i+1, r.Wall[i], r.CPU[i])
		}
	}
	return nil
}

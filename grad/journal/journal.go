// Package journal keeps a training in a folder: the log of its steps, and the state
// from which it goes on with the bits of a training that nothing interrupted.
package journal

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"samebit/backend"
	"samebit/checkpoint"
	"samebit/grad"
	"samebit/internal/wholefile"
	"samebit/tensor"
)

// Names of the files.
const (
	StateFile = "state.safetensors"
	LogFile   = "log.csv"
)

// Journal are the files of one training. Kind, Format, Config and Columns say which
// training it is; none of them changes later.
type Journal struct {
	Kind     string // of training, for example "train": in errors and in the state
	Format   int    // version of what a state says
	Config   string // digest of what decides the training's bits
	Columns  []string
	Required int              // columns that every line fills; the others may be blank
	Dir      string           // where files are read
	Folder   wholefile.Folder // where they are written; nil means Dir

	Lines [][]string // of the log, one per step
}

// Head is what every state says; a training embeds it in what it says of itself.
type Head struct {
	Format int    `json:"format"`
	Config string `json:"config"`
	Steps  int    `json:"steps"`
}

func (h *Head) head() *Head { return h }

// Progress is a pointer to a struct that embeds Head and can be written as JSON.
type Progress interface{ head() *Head }

// Replace writes a file as a whole.
func (j *Journal) Replace(name string, write func(io.Writer) error) error {
	d := j.Folder
	if d == nil {
		d = wholefile.OS(j.Dir)
	}
	if err := wholefile.Replace(d, name, write); err != nil {
		return fmt.Errorf("%s: save %s: %w", j.Kind, name, err)
	}
	return nil
}

// Save writes the log and then the state, each as a whole: whenever the process
// dies, the state is one that the training can go on from, and the log has its
// steps. The state holds the optimiser's tensors and more, whose names must be others.
func (j *Journal) Save(s backend.Stream, adam *grad.AdamW, p Progress, more ...checkpoint.Entry) error {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	w.Write(j.Columns)
	w.WriteAll(j.Lines)
	if err := w.Error(); err != nil {
		return err
	}
	err := j.Replace(LogFile, func(w io.Writer) error {
		_, err := w.Write(b.Bytes())
		return err
	})
	if err != nil {
		return err
	}
	var entries []checkpoint.Entry
	for name, t := range adam.Tensors() {
		v := make([]float32, t.Len())
		s.Read(tensor.AsBytes(v), t)
		if err := s.Sync(); err != nil {
			return err
		}
		entries = append(entries, Entry(name, v))
	}
	*p.head() = Head{j.Format, j.Config, adam.Steps}
	meta, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("%s: save %s: %w", j.Kind, StateFile, err)
	}
	return j.Replace(StateFile, func(w io.Writer) error {
		b := bufio.NewWriterSize(w, 1<<20)
		return errors.Join(checkpoint.Write(b, append(entries, more...), map[string]string{j.Kind: string(meta)}), b.Flush())
	})
}

// Entry is a vector of a state.
func Entry(name string, v []float32) checkpoint.Entry {
	return checkpoint.Entry{Name: name, Type: checkpoint.F32, Shape: []int{len(v)}, Data: tensor.AsBytes(v)}
}

// Open opens the state of an interrupted training and fills in p; nil if there is
// none. It fails for a state that is damaged or belongs to another training.
func (j *Journal) Open(p Progress) (*checkpoint.Set, error) {
	path := filepath.Join(j.Dir, StateFile)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	set, err := checkpoint.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: remove the file to begin anew", j.Kind, err)
	}
	if err := json.Unmarshal([]byte(set.Metadata()[j.Kind]), p); err != nil || p.head().Format != j.Format {
		set.Close()
		return nil, fmt.Errorf("%s: %s is no state of a %s of format %d: remove the file to begin anew", j.Kind, path, j.Kind, j.Format)
	}
	if p.head().Config != j.Config {
		set.Close()
		return nil, fmt.Errorf("%s: %s was made with another config: use that config, another directory, or remove the file to begin anew", j.Kind, path)
	}
	return set, nil
}

// Resume brings values and optimiser to where Open found them, of total steps, and
// reads the log up to there.
func (j *Journal) Resume(set *checkpoint.Set, p Progress, total int, s backend.Stream, params *grad.Params, adam *grad.AdamW) error {
	steps := p.head().Steps
	if steps < 0 || steps > total {
		return fmt.Errorf("%s: the state has made %d of %d steps", j.Kind, steps, total)
	}
	for name, t := range adam.Tensors() {
		v, err := j.Vector(set, name, t.Len())
		if err != nil {
			return err
		}
		s.Write(t, tensor.AsBytes(v))
	}
	if err := s.Sync(); err != nil {
		return err
	}
	if err := params.Refresh(); err != nil {
		return err
	}
	adam.Steps = steps
	values, lines, err := ReadLog(j.Dir, j.Columns, j.Required)
	if err != nil {
		return fmt.Errorf("%s: resume: %w", j.Kind, err)
	}
	j.Lines = nil
	for i, line := range lines { // the log may be ahead of the state, never behind
		if int(values[i][0]) <= steps {
			j.Lines = append(j.Lines, line)
		}
	}
	return nil
}

// Vector reads n values of a state.
func (j *Journal) Vector(set *checkpoint.Set, name string, n int) ([]float32, error) {
	e, err := set.Tensor(name)
	if err != nil {
		return nil, fmt.Errorf("%s: resume: %w", j.Kind, err)
	}
	v, err := e.Float32s()
	if err != nil {
		return nil, fmt.Errorf("%s: resume: %w", j.Kind, err)
	}
	if len(v) != n {
		return nil, fmt.Errorf("%s: resume: %s has %d values instead of %d", j.Kind, name, len(v), n)
	}
	return v, nil
}

// ReadLog reads the log in a folder: its lines, and their values, NaN where a column
// after the first required ones is blank. The first column counts the steps.
func ReadLog(dir string, columns []string, required int) (values [][]float64, lines [][]string, err error) {
	text, err := os.ReadFile(filepath.Join(dir, LogFile))
	if err != nil {
		return nil, nil, err
	}
	if lines, err = csv.NewReader(bytes.NewReader(text)).ReadAll(); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", LogFile, err)
	}
	if len(lines) == 0 || !slices.Equal(lines[0], columns) {
		return nil, nil, fmt.Errorf("%s: the first line is not %v", LogFile, columns)
	}
	lines = lines[1:]
	for i, line := range lines {
		v := make([]float64, len(line))
		for k, x := range line {
			v[k] = math.NaN()
			if x == "" && k >= required {
				continue
			}
			if v[k], err = strconv.ParseFloat(x, 64); err != nil {
				return nil, nil, fmt.Errorf("%s: line %d: %w", LogFile, i+2, err)
			}
		}
		values = append(values, v)
	}
	return values, lines, nil
}

// Hash is SHA-256 of all values, float32, in order of name.
func Hash(s backend.Stream, params *grad.Params) (string, error) {
	h := sha256.New()
	for p := range params.All() {
		v := make([]float32, p.Value.Len())
		s.Read(tensor.AsBytes(v), p.Value)
		if err := s.Sync(); err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n", p.Name, len(v))
		h.Write(tensor.AsBytes(v))
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}

// Number is a value as a line of the log has it: of as many bits, 32 or 64, as it
// needs to be read back.
func Number(v float64, bits int) string { return strconv.FormatFloat(v, 'g', -1, bits) }

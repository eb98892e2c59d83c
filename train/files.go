package train

import (
	"bufio"
	"bytes"
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

	"samebit/checkpoint"
	"samebit/internal/wholefile"
	"samebit/qwen3"
	"samebit/tensor"
)

// format is the version of the state file.
const format = 1

// progress is what the state file says besides tensors.
type progress struct {
	Format int        `json:"format"`
	Config string     `json:"config"` // digest
	Steps  int        `json:"steps"`
	Best   *Judgement `json:"best,omitempty"`
	BestAt int        `json:"best_at,omitempty"`
	Bad    int        `json:"bad,omitempty"`
}

func writing(data []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
}

// save writes the log and then the state, each as a whole: whenever the process
// dies, the state is one that a training can go on from, and the log has its steps.
func (r *run) save() error {
	text, err := writeLog(r.log)
	if err != nil {
		return err
	}
	if err := wholefile.Replace(r.opt.folder, logFile, writing(text)); err != nil {
		return fmt.Errorf("train: save %s: %w", logFile, err)
	}
	var entries []checkpoint.Entry
	for name, t := range r.adam.Tensors() {
		v := make([]float32, t.Len())
		r.stream.Read(tensor.AsBytes(v), t)
		if err := r.stream.Sync(); err != nil {
			return err
		}
		entries = append(entries, checkpoint.Entry{Name: name, Type: checkpoint.F32, Shape: []int{len(v)}, Data: tensor.AsBytes(v)})
	}
	meta, err := json.Marshal(progress{format, r.cfg.digest(), r.adam.Steps, r.best, r.bestAt, r.bad})
	if err != nil {
		return err
	}
	err = wholefile.Replace(r.opt.folder, stateFile, func(w io.Writer) error {
		b := bufio.NewWriterSize(w, 1<<20)
		return errors.Join(checkpoint.Write(b, entries, map[string]string{"train": string(meta)}), b.Flush())
	})
	if err != nil {
		return fmt.Errorf("train: save %s: %w", stateFile, err)
	}
	return nil
}

// saved opens the state of an interrupted training; nil if there is none.
func (r *run) saved() (set *checkpoint.Set, p progress, err error) {
	path := filepath.Join(r.dir, stateFile)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, p, nil
	}
	if set, err = checkpoint.Open(path); err != nil {
		return nil, p, fmt.Errorf("train: %w: remove the file to begin anew", err)
	}
	if err := json.Unmarshal([]byte(set.Metadata()["train"]), &p); err != nil || p.Format != format {
		set.Close()
		return nil, p, fmt.Errorf("train: %s is no state of a training of format %d: remove the file to begin anew", path, format)
	}
	if p.Config != r.cfg.digest() {
		set.Close()
		return nil, p, fmt.Errorf("train: %s belongs to a training with another config: use that config, another directory, or remove the file to begin anew", path)
	}
	return set, p, nil
}

// resume goes on from a state.
func (r *run) resume(set *checkpoint.Set, p progress) error {
	if p.Steps < 0 || p.Steps > r.cfg.Steps() {
		return fmt.Errorf("train: the state has made %d of %d steps", p.Steps, r.cfg.Steps())
	}
	for name, t := range r.adam.Tensors() {
		e, err := set.Tensor(name)
		if err != nil {
			return fmt.Errorf("train: resume: %w", err)
		}
		v, err := e.Float32s()
		if err != nil {
			return fmt.Errorf("train: resume: %w", err)
		}
		if len(v) != t.Len() {
			return fmt.Errorf("train: resume: %s has %d values instead of %d", name, len(v), t.Len())
		}
		r.stream.Write(t, tensor.AsBytes(v))
	}
	if err := r.stream.Sync(); err != nil {
		return err
	}
	if err := r.params.Refresh(); err != nil {
		return err
	}
	r.adam.Steps, r.best, r.bestAt, r.bad = p.Steps, p.Best, p.BestAt, p.Bad
	text, err := os.ReadFile(filepath.Join(r.dir, logFile))
	if err != nil {
		return fmt.Errorf("train: resume: %w", err)
	}
	points, lines, err := parseLog(text)
	if err != nil {
		return fmt.Errorf("train: resume: %s: %w", logFile, err)
	}
	for i, line := range lines { // the log may be ahead of the state, never behind
		if points[i].Step <= p.Steps {
			r.log = append(r.log, line)
		}
	}
	return nil
}

var columns = []string{"step", "rows", "loss", "answers", "norm", "rate", "recall", "answer_loss", "prose_loss"}

// line is a step as the log has it.
func (s *Step) line() []string {
	f := func(v float64, bits int) string { return strconv.FormatFloat(v, 'g', -1, bits) }
	line := []string{strconv.Itoa(s.Step), strconv.Itoa(s.Rows), f(float64(s.Loss), 32), f(float64(s.Answers), 32), f(float64(s.Norm), 32), f(s.Rate, 64), "", "", ""}
	if j := s.Judgement; j != nil {
		line[6], line[7], line[8] = f(j.Share(0), 64), f(j.Loss, 64), f(j.Prose, 64)
	}
	return line
}

func writeLog(log [][]string) ([]byte, error) {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	w.Write(columns)
	w.WriteAll(log)
	return b.Bytes(), w.Error()
}

// Point is a line of a training's log. What was not measured at a step is NaN.
type Point struct {
	Step, Rows                    int
	Loss, Answers, Norm, Rate     float64
	Recall, AnswerLoss, ProseLoss float64 // of validations
}

// parseLog reads what writeLog wrote, and its lines.
func parseLog(text []byte) ([]Point, [][]string, error) {
	lines, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil {
		return nil, nil, err
	}
	if len(lines) == 0 || !slices.Equal(lines[0], columns) {
		return nil, nil, fmt.Errorf("the first line is not %v", columns)
	}
	lines = lines[1:]
	points := make([]Point, len(lines))
	for i, line := range lines {
		var v [9]float64
		for k, x := range line {
			v[k] = math.NaN()
			if x == "" && k >= 6 {
				continue
			}
			if v[k], err = strconv.ParseFloat(x, 64); err != nil {
				return nil, nil, fmt.Errorf("line %d: %w", i+2, err)
			}
		}
		points[i] = Point{int(v[0]), int(v[1]), v[2], v[3], v[4], v[5], v[6], v[7], v[8]}
	}
	return points, lines, nil
}

// ReadLog reads the log of a training in a directory.
func ReadLog(dir string) ([]Point, error) {
	path := filepath.Join(dir, logFile)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("train: %w", err)
	}
	points, _, err := parseLog(text)
	if err != nil {
		return nil, fmt.Errorf("train: %s: %w", path, err)
	}
	return points, nil
}

// chatTemplate is ChatML with tool turns.
const chatTemplate = `{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}`

// describe writes what a model directory has besides weights and vocabulary.
func (r *run) describe(config []byte) error {
	model := wholefile.OS(filepath.Join(r.dir, modelDir))
	tokenizer, err := json.MarshalIndent(map[string]any{
		"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": endOfTurn, "pad_token": endOfText, "bos_token": nil, "add_bos_token": false,
		"model_max_length": r.shape.Context, "clean_up_tokenization_spaces": false, "chat_template": chatTemplate,
	}, "", "  ")
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{"config.json": config, "tokenizer_config.json": append(tokenizer, '\n')} {
		if err := wholefile.Replace(model, name, writing(text)); err != nil {
			return fmt.Errorf("train: %w", err)
		}
	}
	return nil
}

// export writes the model as it is now, in bfloat16.
func (r *run) export() error {
	byName := map[string][]float32{}
	for p := range r.params.All() {
		v, err := r.values(p)
		if err != nil {
			return err
		}
		byName[p.Name] = v
	}
	file, err := weights(r.shape, func(p qwen3.Param) ([]float32, error) {
		v := byName[p.Name]
		if p.Stored == qwen3.Transposed {
			v = transpose(v, len(v)/p.Shape[0])
		}
		return v, nil
	}, checkpoint.BF16)
	if err != nil {
		return err
	}
	if err := wholefile.Replace(wholefile.OS(filepath.Join(r.dir, modelDir)), "model.safetensors", writing(file)); err != nil {
		return fmt.Errorf("train: %w", err)
	}
	return nil
}

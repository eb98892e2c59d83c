package train

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strconv"

	"samebit/checkpoint"
	"samebit/grad/journal"
	"samebit/internal/wholefile"
	"samebit/qwen3"
)

// format is the version of the state file.
const format = 1

// progress is what the state file says besides tensors.
type progress struct {
	journal.Head
	Best   *Judgement `json:"best,omitempty"`
	BestAt int        `json:"best_at,omitempty"`
	Bad    int        `json:"bad,omitempty"`

	Training *Config  `json:"training,omitempty"`     // whose digest the head has
	Prose    []string `json:"prose_sha256,omitempty"` // SHA-256 of each prose file's text; nil in old states
}

func writing(data []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
}

// journal is the training's, before anything of it is read.
func (r *run) journal() *journal.Journal {
	return &journal.Journal{Kind: "train", Format: format, Config: r.cfg.digest(), Columns: columns, Required: required, Dir: r.dir, Folder: r.opt.folder}
}

// save writes the log and the state.
func (r *run) save() error {
	return r.log.Save(r.stream, r.adam, &progress{Best: r.best, BestAt: r.bestAt, Bad: r.bad, Training: &r.cfg, Prose: r.prose})
}

// sameProse refuses a state whose steps were made with other text in a prose file. One
// that does not say with which is trusted.
func (r *run) sameProse(p *progress) error {
	for i, was := range p.Prose {
		if i < len(r.prose) && r.prose[i] != was {
			return fmt.Errorf("train: the prose %s is not the text that the %d steps of %s were made with (its SHA-256 was %s and is %s): put that text back, use another directory, or remove the state to begin anew",
				r.cfg.Prose[i], p.Steps, filepath.Join(r.dir, journal.StateFile), was, r.prose[i])
		}
	}
	return nil
}

// resume goes on from a state.
func (r *run) resume(set *checkpoint.Set, p progress) error {
	if err := r.log.Resume(set, &p, r.cfg.Steps(), r.stream, r.params, r.adam); err != nil {
		return err
	}
	r.best, r.bestAt, r.bad = p.Best, p.BestAt, p.Bad
	if n := len(r.log.Lines); n > 0 && !r.cfg.judged(n) { // as the last step of a shorter config may have been
		clear(r.log.Lines[n-1][required:])
	}
	return nil
}

var columns = []string{"step", "rows", "loss", "answers", "norm", "rate", "recall", "answer_loss", "prose_loss"}

// required are the columns of every step; the others are those of validations.
const required = 6

// line is a step as the log has it.
func (s *Step) line() []string {
	f := journal.Number
	line := []string{strconv.Itoa(s.Step), strconv.Itoa(s.Rows), f(float64(s.Loss), 32), f(float64(s.Answers), 32), f(float64(s.Norm), 32), f(s.Rate, 64), "", "", ""}
	if j := s.Judgement; j != nil {
		line[6], line[7], line[8] = f(j.Share(0), 64), f(j.Loss, 64), f(j.Prose, 64)
	}
	return line
}

// Point is a line of a training's log. What was not measured at a step is NaN.
type Point struct {
	Step, Rows                    int
	Loss, Answers, Norm, Rate     float64
	Recall, AnswerLoss, ProseLoss float64 // of validations
}

// ReadLog reads the log of a training in a directory.
func ReadLog(dir string) ([]Point, error) {
	lines, _, err := journal.ReadLog(dir, columns, required)
	if err != nil {
		return nil, fmt.Errorf("train: %s: %w", dir, err)
	}
	points := make([]Point, len(lines))
	for i, v := range lines {
		points[i] = Point{int(v[0]), int(v[1]), v[2], v[3], v[4], v[5], v[6], v[7], v[8]}
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

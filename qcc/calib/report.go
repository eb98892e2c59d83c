package calib

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"samebit/grad/journal"
	"samebit/qcc"
	"samebit/state"
)

// Names of the files of a calibration in its directory, besides the log and the
// state of package journal.
const (
	AdapterFile = "adapter.safetensors"
	ReportFile  = "report.json"
)

// Step is what is known after a step.
type Step struct {
	Step, Steps int
	Loss        float32 // what the step lowers
	Logits      float32 // loss of the logits
	Attention   float32 // loss of the layers' outputs
	Norm        float32 // of the gradient, before clipping
	Rate        float64
	HeldOut     *Fidelity // where the adapter was validated after this step
	Best        bool      // and is the best so far
}

// Report is what a calibration made.
type Report struct {
	RunID     string `json:"run_id"` // follows from model, adapter, data and options
	Model     string `json:"model"`  // the identity of its weights
	Steps     int    `json:"steps"`
	Selected  int    `json:"selected_step"` // whose parameters were kept
	Stopped   bool   `json:"stopped"`       // early, for lack of improvement
	Layers    []int  `json:"patched_layers"`
	Trained   []int  `json:"calibrated_layers"`
	Train     int    `json:"num_train_chunks"`
	HeldOut   int    `json:"num_held_out_chunks"`
	Skipped   int    `json:"skipped_chunks"` // that the window covers
	Trainable int    `json:"trainable_parameter_count"`

	Fraction float64 `json:"trainable_parameter_fraction,omitempty"` // of all, if the manifest says how many there are

	Before *Fidelity `json:"held_out_before,omitempty"`
	After  *Fidelity `json:"held_out,omitempty"`
	// A model that keeps, in the same bytes, original rows alone.
	WindowRows int       `json:"window_rows,omitempty"`
	Window     *Fidelity `json:"held_out_window,omitempty"`

	Training Fidelity `json:"training"` // on what was trained on, with what was kept
	Gate     float64  `json:"quality_gate"`
	Passed   bool     `json:"passed"` // held out, or without held-out sequences in training
	Hash     string   `json:"hash"`   // of the trained values, float32, in order of name
	Options  Options  `json:"options"`
}

var columns = []string{"step", "loss", "logits", "attention", "norm", "rate", "cosine", "top1", "kl"}

// required are the columns of every step; the others are those of validations.
const required = 6

func (s *Step) line() []string {
	f := journal.Number
	l := []string{strconv.Itoa(s.Step), f(float64(s.Loss), 32), f(float64(s.Logits), 32), f(float64(s.Attention), 32), f(float64(s.Norm), 32), f(s.Rate, 64), "", "", ""}
	if h := s.HeldOut; h != nil {
		l[6], l[7], l[8] = f(h.Cosine, 64), f(h.Top1, 64), f(h.KL, 64)
	}
	return l
}

// Point is a line of the log. What was not measured at a step is NaN.
type Point struct {
	Step                                int
	Loss, Logits, Attention, Norm, Rate float64
	Cosine, Top1, KL                    float64 // held out
}

// ReadLog reads the log of a calibration in a directory.
func ReadLog(dir string) ([]Point, error) {
	lines, _, err := journal.ReadLog(dir, columns, required)
	if err != nil {
		return nil, fmt.Errorf("calib: %s: %w", dir, err)
	}
	points := make([]Point, len(lines))
	for i, v := range lines {
		points[i] = Point{int(v[0]), v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8]}
	}
	return points, nil
}

// progress is what the state says besides tensors.
type progress struct {
	journal.Head
	Before *Fidelity `json:"before,omitempty"`
	Best   *Fidelity `json:"best,omitempty"`
	BestAt int       `json:"best_at,omitempty"`
	Bad    int       `json:"bad,omitempty"`
}

// runID identifies what decides a calibration's bits.
func runID(model state.ID, a *qcc.Adapter, data Data, options any) (string, error) {
	h := sha256.New()
	text, err := json.Marshal(options)
	if err != nil {
		return "", fmt.Errorf("calib: %w", err)
	}
	h.Write(model[:])
	h.Write(text)
	plain := *a
	plain.Manifest = qcc.Manifest{} // what it says of itself changes nothing
	if _, err := plain.WriteTo(h); err != nil {
		return "", err
	}
	for _, list := range [][][]int32{data.Train, data.HeldOut} {
		binary.Write(h, binary.LittleEndian, int64(len(list)))
		for _, seq := range list {
			binary.Write(h, binary.LittleEndian, int64(len(seq)))
			binary.Write(h, binary.LittleEndian, seq)
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}

// publish writes adapter and report.
func publish(j *journal.Journal, a *qcc.Adapter, report any) error {
	text, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return fmt.Errorf("calib: report: %w", err)
	}
	err = j.Replace(AdapterFile, func(w io.Writer) error {
		_, err := a.WriteTo(w)
		return err
	})
	if err != nil {
		return err
	}
	return j.Replace(ReportFile, func(w io.Writer) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
}

// checkFinite fails with ErrNonFinite for what is no number.
func checkFinite(step int, values ...float32) error {
	for _, v := range values {
		if v-v != 0 {
			return fmt.Errorf("calib: step %d has a loss or a gradient of %v: a lower rate or more warmup may help: %w", step, v, ErrNonFinite)
		}
	}
	return nil
}

// Package calib calibrates adapters: it trains what a retrofit added to a model until
// the bounded model says what the unbounded one says.
//
// The teacher is the model with full attention, the student the same weights with
// the adapter. Only the adapter's parameters are trained. Which bits come out is
// decided by model, adapter, data and options (docs/numerics.md 10 and 16.7): neither
// threads, micro-batches nor interruptions change one.
package calib

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"samebit/internal/wholefile"
	"samebit/qcc"
)

var (
	// ErrOptions is the cause when an option is wrong.
	ErrOptions = errors.New("wrong calibration option")
	// ErrNothing is the cause when there is nothing to learn from.
	ErrNothing = errors.New("nothing to learn")
	// ErrNonFinite is the cause when a loss or a gradient is no finite number.
	ErrNonFinite = errors.New("the loss is no finite number")
)

// CodeInit says what codes begin with.
type CodeInit string

const (
	KMeans    CodeInit = "kmeans"     // centres of the teacher's keys
	KeySample CodeInit = "key-sample" // some of the teacher's keys
	Random    CodeInit = "random"     // what the adapter has
	Whitened  CodeInit = "whitened"   // centres of the teacher's keys as their own covariance measures them; maps of addresses fit
)

// Weights say what the loss of logits is made of: of student logits s and teacher
// logits y the mean over rows of Cosine·(1 - cos(s, y)) + KL·T²·KL(softmax(y/T) ‖
// softmax(s/T)) + CE·crossentropy(s, argmax y) + Margin·max(0, Gap - s[first of y] +
// s[second of y]), and the rest up to 1 of the mean squared difference.
type Weights struct {
	Cosine float32 `json:"cosine"`
	KL     float32 `json:"kl"`
	CE     float32 `json:"ce"`
	Margin float32 `json:"margin"`

	Temperature float32 `json:"temperature"`
	Gap         float32 `json:"gap"`
}

// squared is the weight of the squared difference.
func (w Weights) squared() float32 { return 1 - w.Cosine - w.KL - w.CE - w.Margin }

// Options say how an adapter is calibrated. Begin with [LayerOptions] or
// [TextOptions]. The fields up to Save decide bits.
type Options struct {
	Steps  int    `json:"steps"`
	Chunks int    `json:"chunks"` // sequences of a step
	Layers string `json:"layers"` // which layers are trained: see [ChooseLayers]

	Rate   float64 `json:"rate"`
	Warmup int     `json:"warmup"` // steps of linear rise
	Floor  float64 `json:"floor"`  // fraction of Rate that a cosine ends at; 1: the rate is constant
	Decay  float64 `json:"decay"`
	Clip   float64 `json:"clip"`

	Weights       Weights `json:"weights"`
	Attention     float32 `json:"attention"`      // weight of what the layers give, next to 1 - Attention of the logits
	AttentionRows int     `json:"attention_rows"` // of a sequence, at most
	AllRows       bool    `json:"all_rows"`       // also learn from rows that the window covers

	CodeInit   CodeInit `json:"code_init"`
	CodeTokens int      `json:"code_tokens"`           // rows of a sequence that codes are made from, at most
	CodeSpread float64  `json:"code_spread,omitempty"` // of whitened codes: how far the scores of keys spread about 0; 0: 2

	Interval int     `json:"interval"` // steps between validations, with held-out sequences
	Patience int     `json:"patience"` // validations without improvement that end it; 0: never
	Gate     float64 `json:"gate"`     // cosine and top-1 agreement that are asked for

	Save      int              `json:"-"` // steps between states in the directory
	Dir       string           `json:"-"` // where the files go; empty: none are kept
	MicroRows int              `json:"-"` // rows of a micro-batch; 0 means 1024
	Until     int              `json:"-"` // stop after this step; 0 means after the last
	Progress  func(Step)       `json:"-"` // called after each step
	folder    wholefile.Folder // replaces Dir's file system
}

// LayerOptions are those of calibration by layers over many sequences.
func LayerOptions() Options {
	return Options{Steps: 100, Chunks: 1, Layers: "all", Rate: 0.02, Floor: 1, Decay: 0.01, Clip: 1,
		Weights: Weights{KL: 0.5, Temperature: 2}, Attention: 0.35, AttentionRows: 256,
		CodeInit: KMeans, CodeTokens: 256, Interval: 10, Gate: 0.99, Save: 10}
}

// TextOptions are those of calibration on a single text.
func TextOptions() Options {
	o := LayerOptions()
	o.Attention = 0
	return o
}

// Check reports the first option that is wrong, with ErrOptions.
func (o *Options) Check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("calib: "+format+": %w", append(args, ErrOptions)...)
	}
	share := func(v float32) bool { return v >= 0 && v <= 1 }
	w := o.Weights
	switch {
	case o.Steps < 1 || o.Steps > 1<<24 || o.Chunks < 1 || o.Chunks > 1<<20:
		return bad("%d steps of %d sequences: want at least 1 of each", o.Steps, o.Chunks)
	case !(o.Rate > 0 && o.Rate < 1):
		return bad("learning rate %v: want it between 0 and 1", o.Rate)
	case o.Warmup < 0 || o.Warmup > o.Steps:
		return bad("warmup of %d steps of %d: want 0 to all", o.Warmup, o.Steps)
	case !(o.Floor >= 0 && o.Floor <= 1):
		return bad("floor %v of the rate: want a fraction", o.Floor)
	case !(o.Decay >= 0 && o.Decay < 1) || !(o.Clip >= 0) || math.IsInf(o.Clip, 1):
		return bad("weight decay %v, gradient clipped at %v: want 0 to 1, and a norm or 0 for none", o.Decay, o.Clip)
	case !share(w.Cosine) || !share(w.KL) || !share(w.CE) || !share(w.Margin) || !(w.squared() >= -1e-6):
		return bad("loss weights %v of cosine, %v of KL, %v of cross-entropy, %v of margin: want each from 0 to 1, and at most 1 in all", w.Cosine, w.KL, w.CE, w.Margin)
	case !(w.Temperature > 0) || math.IsInf(float64(w.Temperature), 1):
		return bad("temperature %v: want a positive number", w.Temperature)
	case !(w.Gap >= 0) || math.IsInf(float64(w.Gap), 1):
		return bad("margin of %v: want a number of at least 0", w.Gap)
	case !share(o.Attention):
		return bad("weight %v of the layers' outputs: want it from 0 to 1", o.Attention)
	case o.Attention > 0 && o.AttentionRows < 1:
		return bad("outputs of the layers are compared on %d rows: want at least 1", o.AttentionRows)
	case o.CodeInit != KMeans && o.CodeInit != KeySample && o.CodeInit != Random && o.CodeInit != Whitened:
		return bad("codes from %q: want %q, %q, %q or %q", o.CodeInit, KMeans, KeySample, Whitened, Random)
	case o.CodeSpread != 0 && o.CodeInit != Whitened:
		return bad("a spread of scores with codes from %q: it is for %q", o.CodeInit, Whitened)
	case !(o.CodeSpread >= 0 && o.CodeSpread <= 10):
		return bad("scores of keys that spread by %v: want 0 to 10", o.CodeSpread)
	case o.CodeInit != Random && o.CodeTokens < 1:
		return bad("codes from %d rows of a sequence: want at least 1", o.CodeTokens)
	case o.Interval < 1:
		return bad("a validation every %d steps: want at least 1", o.Interval)
	case o.Patience < 0 || o.Until < 0 || o.MicroRows < 0:
		return bad("patience %d, until %d, %d rows of a micro-batch: none may be negative", o.Patience, o.Until, o.MicroRows)
	case !(o.Gate >= 0 && o.Gate <= 1):
		return bad("quality gate %v: want it from 0 to 1", o.Gate)
	case o.Save < 1:
		return bad("files are saved every %d steps: want at least 1", o.Save)
	}
	return nil
}

// ChooseLayers resolves a choice among n layers, counted from 0 in the order of the
// model: all, first-half, last-half, last-quarter, a range such as 2-5, or a list
// such as 0,3. It fails with ErrOptions.
func ChooseLayers(choice string, n int) ([]int, error) {
	bad := func(why string) ([]int, error) {
		return nil, fmt.Errorf("calib: layers %q: %s: want all, first-half, last-half, last-quarter, a range such as 0-%d or a list such as 0,%d: %w", choice, why, n-1, n-1, ErrOptions)
	}
	from, to := 0, n
	switch choice {
	case "all":
	case "first-half":
		to = max(1, n/2)
	case "last-half":
		from = n / 2
	case "last-quarter":
		from = n - max(1, n/4)
	default:
		if a, b, ok := strings.Cut(choice, "-"); ok {
			x, errA := strconv.Atoi(a)
			y, errB := strconv.Atoi(b)
			if errA != nil || errB != nil || x > y || x < 0 || y >= n {
				return bad(fmt.Sprintf("no range within the %d layers", n))
			}
			from, to = x, y+1
			break
		}
		var list []int
		for _, word := range strings.Split(choice, ",") {
			x, err := strconv.Atoi(strings.TrimSpace(word))
			if err != nil || x < 0 || x >= n {
				return bad(fmt.Sprintf("%q is none of the %d layers", word, n))
			}
			if len(list) > 0 && x <= list[len(list)-1] {
				return bad("they must rise")
			}
			list = append(list, x)
		}
		return list, nil
	}
	var list []int
	for i := from; i < to; i++ {
		list = append(list, i)
	}
	if len(list) == 0 {
		return bad("there are none")
	}
	return list, nil
}

// trainable is the configuration that gradients flow through: dense reads, none of
// them used again. It fails with qcc.ErrUntrainable.
func trainable(c qcc.Config) (qcc.Config, error) {
	switch {
	case c.NoArchive:
		return c, fmt.Errorf("calib: a configuration without an archive has nothing to train: %w", qcc.ErrUntrainable)
	case c.Exact != nil:
		return c, fmt.Errorf("calib: an exact tier has no gradient: calibrate without it, then its admission (RunAdmission): %w", qcc.ErrUntrainable)
	}
	c.ActiveCodes, c.StaleReads, c.ReadCloseness, c.ReadStride = 0, false, nil, 1
	return c, c.Trainable()
}

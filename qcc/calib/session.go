package calib

import (
	"fmt"
	"os"
	"slices"

	"samebit/backend"
	"samebit/checkpoint"
	"samebit/grad"
	"samebit/grad/journal"
	"samebit/nn"
	"samebit/qcc"
)

// session is what every calibration works with.
type session struct {
	dev     backend.Device
	teacher *nn.Decoder
	from    *qcc.Adapter // as it was given

	chosen  []int // of the adapter's layers
	skipped int   // sequences that the window covers

	stream  backend.Stream
	reader  *reader
	patched *qcc.Patched
	params  *grad.Params
	adam    *grad.AdamW
	log     *journal.Journal
}

// blocks are those of the chosen layers.
func (s *session) blocks() []int {
	b := make([]int, len(s.chosen))
	for i, l := range s.chosen {
		b[i] = s.from.Layers[l]
	}
	return b
}

// longer leaves the sequences out that window and sinks cover, and counts them. It fails
// with ErrNothing where none is left to train on.
func (s *session) longer(data *Data, window, sinks int) error {
	longest := 0
	for _, t := range data.Train {
		longest = max(longest, len(t))
	}
	covered := func(t []int32) bool { return len(t) <= window+sinks }
	for _, list := range []*[][]int32{&data.Train, &data.HeldOut} {
		n := len(*list)
		*list = slices.DeleteFunc(slices.Clone(*list), covered)
		s.skipped += n - len(*list)
	}
	if len(data.Train) > 0 {
		return nil
	}
	what := "the window covers"
	if sinks > 0 {
		what = "window and sinks cover"
	}
	return fmt.Errorf("calib: %s %d tokens, the longest sequence has %d: give a longer text, longer sequences of it, or a smaller window: %w", what, window+sinks, longest, ErrNothing)
}

// openLog opens the journal's directory, if it has one, and a state in it, nil if
// there is none.
func (s *session) openLog(j *journal.Journal, p *progress) (*checkpoint.Set, error) {
	j.Format = 1
	if s.log = j; j.Dir == "" {
		return nil, nil
	}
	if err := os.MkdirAll(j.Dir, 0o777); err != nil {
		return nil, fmt.Errorf("calib: %w", err)
	}
	return j.Open(p)
}

func (s *session) close() {
	if s.params != nil {
		s.params.Close()
	}
	if s.patched != nil {
		s.patched.Close()
	}
	if s.reader != nil {
		s.reader.close()
	}
	if s.stream != nil {
		s.stream.Close()
	}
}

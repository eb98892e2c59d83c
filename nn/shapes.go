package nn

import (
	"samebit/state"
)

// Shapes says what a decoder's sequences remember. A kind with no layers, or a
// sum of no width, is left out.
type Shapes struct {
	KV    state.KVShape
	Delta state.DeltaShape
	Sum   int // width of the running sum of a Tap
}

// NewState returns how empty states of the model id are made.
func (s Shapes) NewState(id state.ID) func(*state.Pool) (state.State, error) {
	return func(p *state.Pool) (state.State, error) {
		var st state.Stack
		add := func(part state.State, err error) error {
			if err == nil {
				st.Parts = append(st.Parts, part)
			}
			return err
		}
		if s.KV.Layers > 0 {
			k, err := state.NewKV(p, id, s.KV)
			if add(k, err) != nil {
				return nil, err
			}
		}
		if s.Delta.Layers > 0 {
			d, err := state.NewDelta(p, id, s.Delta)
			if add(d, err) != nil {
				return nil, err
			}
		}
		if s.Sum > 0 {
			m, err := state.NewSum(p, id, s.Sum)
			if add(m, err) != nil {
				return nil, err
			}
		}
		if len(st.Parts) == 1 {
			return st.Parts[0], nil
		}
		return &st, nil
	}
}

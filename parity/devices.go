package parity

import (
	"context"
	"errors"
	"fmt"

	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/nn"
	"samebit/state"
)

// Target is a device to compare with the processor.
type Target struct {
	Name string
	Open func() (backend.Device, error)
}

// devices runs the text on every target, and with a state that goes there from the
// processor and comes back. All are opened before anything runs.
func (r *run) devices(ctx context.Context, impl string) (err error) {
	var open []backend.Device
	defer func() {
		for _, dev := range open {
			err = errors.Join(err, dev.Close())
		}
	}()
	for _, t := range r.cfg.Devices {
		dev, err := t.Open()
		if err != nil {
			return fmt.Errorf("parity: %s: %w", t.Name, err)
		}
		open = append(open, dev)
		if why := dev.Info().Inexact; why != "" {
			return fmt.Errorf("parity: %s is not bit-exact (%s): there are no bits to compare, open it without its fast mode", t.Name, why)
		}
	}
	if err := r.baseline(ctx, impl); err != nil {
		return err
	}
	for i, t := range r.cfg.Devices {
		err := r.onDevice(ctx, open[i], func(l *lab) error {
			if err := r.check(ctx, l, t.Name+": chunks of 128", l.chunks(128)); err != nil {
				return err
			}
			if err := r.check(ctx, l, t.Name+": batch of 3 with strangers", l.batch(3)); err != nil {
				return err
			}
			return r.on(ctx, cpu.Config{Impl: impl, Threads: 2}, func(home *lab) error {
				return r.check(ctx, l, t.Name+": state from cpu and back", home.visit(l))
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// visit appends a third of the text at home, a third there and the rest at home.
func (l *lab) visit(there *lab) way {
	return func(ctx context.Context, see func(int, []float32)) error {
		rows := l.run.rows
		at := []int{0, max(1, len(rows)/3), max(1, 2*len(rows)/3), len(rows)}
		var snap state.Snapshot
		for i, where := range []*lab{l, there, l} {
			from, to := at[i], at[i+1]
			if from == to {
				continue
			}
			err := where.with(64, func(r *nn.Runner) error {
				if snap != nil {
					defer snap.Release()
					if err := where.resume(r, rows[:from], snap); err != nil {
						return err
					}
				}
				if err := r.AppendAll(ctx, rows[from:to], func(j int, v []float32) { see(from+j, v) }); err != nil {
					return err
				}
				var err error
				snap, err = r.Snapshot()
				return err
			})
			if err != nil {
				return err
			}
		}
		snap.Release()
		return nil
	}
}

// resume continues from a snapshot of any device.
func (l *lab) resume(r *nn.Runner, rows []state.Row, snap state.Snapshot) error {
	st, err := l.dec.NewState(l.pool)
	if err != nil {
		return err
	}
	defer st.Release()
	if err := state.Move(st, snap); err != nil {
		return err
	}
	own, err := st.Snapshot()
	if err != nil {
		return err
	}
	defer own.Release()
	return r.Resume(rows, own)
}

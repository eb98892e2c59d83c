package bench

import (
	"context"
	"fmt"

	"samebit/backend"
	"samebit/nn"
	"samebit/rclc"
	"samebit/state"
)

// TransferConfig says what is handed over.
type TransferConfig struct {
	Name    string
	Rows    int // of each sender
	Request int // tokens
	Senders int
	At      int // how many senders are worked on at once; 0 means one per worker
	Repeat  int
}

// Transfer measures how much a selection costs beside a plain forward of the same
// request after the same rows (tests "select" and "request"; their rates are request
// tokens per second), and a transfer from several senders ("transfer", positions
// looked at per second).
func Transfer(ctx context.Context, dev backend.Device, dec *nn.Decoder, cfg TransferConfig, emit func(Result)) error {
	if cfg.Rows < 8 || cfg.At < 0 || cfg.Request < 1 || cfg.Senders < 1 || cfg.Repeat < 1 {
		return fmt.Errorf("bench: transfer from %d senders of %d rows for a request of %d, %d times: want at least 8 rows, and one of the others", cfg.Senders, cfg.Rows, cfg.Request, cfg.Repeat)
	}
	pool, err := state.NewPool(dev, 0)
	if err != nil {
		return err
	}
	m := &measure{ctx: ctx, cfg: ModelConfig{Name: cfg.Name}, dev: dev, dec: dec, pool: pool, emit: emit}
	if err := m.transfer(cfg); err != nil {
		return err
	}
	return pool.Close()
}

func (m *measure) transfer(cfg TransferConfig) error {
	model, err := rclc.NewModel(m.dec, m.pool, rclc.ModelConfig{})
	if err != nil {
		return err
	}
	var from []rclc.Source
	for i := range cfg.Senders {
		s, err := rclc.FromRows(m.ctx, model, m.rows(cfg.Rows, 200+i))
		if err != nil {
			return err
		}
		defer s.Release()
		from = append(from, s)
	}
	first := from[0].(*rclc.Sender)
	request := m.rows(cfg.Request, 300)
	var ids []int32
	for _, r := range request {
		ids = append(ids, r.Token)
	}
	plain, selects, transfer := m.result("request"), m.result("select"), m.result("transfer")
	for _, r := range []*Result{&plain, &selects, &transfer} {
		r.N, r.Depth = cfg.Request, cfg.Rows
	}
	transfer.Seqs = cfg.Senders
	for i := range cfg.Repeat + 1 { // in turn, so that a slow moment hits all alike
		err := plain.timed(func() error {
			r, s, err := model.NewRunner()
			if err != nil {
				return err
			}
			defer s.Close()
			defer r.Close()
			if err := r.Resume(first.Rows, first.Snap); err != nil {
				return err
			}
			return r.Append(m.ctx, request)
		})
		if err == nil {
			err = selects.timed(func() error {
				_, err := rclc.CacheBack{}.Select(m.ctx, first, ids, cfg.Rows/4)
				return err
			})
		}
		if err == nil {
			err = transfer.timed(func() error {
				to := rclc.ReceiverFunc(func(context.Context, rclc.Delivery) error { return nil })
				return rclc.Transfer(m.ctx, from, []rclc.Receiver{to}, []rclc.Request{{IDs: ids}}, rclc.Config{Parallel: cfg.At})
			})
		}
		if err != nil {
			return err
		}
		if i == 0 {
			for _, r := range []*Result{&plain, &selects, &transfer} {
				r.Wall, r.CPU = nil, nil
			}
		}
	}
	plain.finish(float64(cfg.Request))
	selects.finish(float64(cfg.Request))
	transfer.finish(float64(cfg.Senders * cfg.Rows))
	for _, r := range []Result{plain, selects, transfer} {
		m.emit(r)
	}
	return nil
}

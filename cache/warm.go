package cache

import (
	"context"
	"fmt"

	"samebit/state"
)

// Precapture runs prefixes that requests are expected to begin with, such as
// system prompts and tool descriptions, so that their checkpoints are there before
// the first request, and the appender's scratch has grown to their size. Each
// prefix is checkpointed by the policy, its end included, however short it is.
//
// Call it when nothing else waits. between, if not nil, is called before each
// prefix; an error of it ends the work and is returned, as is one of the model.
func (c *Cache) Precapture(ctx context.Context, k Key, a Appender, prefixes [][]state.Row, between func() error) error {
	for i, rows := range prefixes {
		if between != nil {
			if err := between(); err != nil {
				return err
			}
		}
		if len(rows) == 0 || !c.enter() {
			continue
		}
		p := &prefill{c: c, ctx: ctx, key: k, a: a, rows: rows, end: len(rows), limit: len(rows), clock: c.cfg.Clock()}
		err := p.run()
		p.done(err)
		c.leave()
		if err != nil {
			return fmt.Errorf("cache: prefix %d of %d, %d rows: %w", i+1, len(prefixes), len(rows), err)
		}
	}
	return nil
}

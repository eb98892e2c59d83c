package cache

import (
	"context"
	"errors"

	"samebit/state"
)

// Relieve gives memory of checkpoints back to the pool, for a sequence whose rows
// failed with state.ErrNoRoom and may be tried again; false when there was none to
// give, or ctx ended while the last of it was being written to the second tier.
// What is dropped does not go there: the memory is wanted now. Prefill and Routed
// do this by themselves. A nil Cache has nothing to give.
func (c *Cache) Relieve(ctx context.Context) bool {
	if c == nil {
		return false
	}
	if c.drop() {
		return true
	}
	return c.tier != nil && c.tier.written(ctx)
}

// drop gives up what waits for the second tier, or else half of what the budget may
// drop.
func (c *Cache) drop() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	any := c.tier != nil && c.tier.abandonEvicted()
	if !any {
		for goal := c.ledger.bytes / 2; c.ledger.bytes > goal && c.evictOne(false); {
			any = true
		}
		if c.tier != nil {
			c.tier.abandonEvicted() // what a Flush had queued
		}
	}
	if any {
		c.stats.Relieved++
	}
	return any
}

// append runs rows in a, which has from rows. When the pool is full, checkpoints
// make room and a goes on where it stopped.
func (c *Cache) append(ctx context.Context, a Appender, from int, rows []state.Row) error {
	for done := 0; done < len(rows); {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := a.Append(ctx, rows[done:])
		if err == nil || !errors.Is(err, state.ErrNoRoom) || !c.Relieve(ctx) {
			return err
		}
		s, e := a.Snapshot() // some chunks may be done
		if e != nil {
			return e
		}
		n := s.Len() - from
		s.Release()
		if n < done || n > len(rows) {
			return err
		}
		done = n
	}
	return nil
}

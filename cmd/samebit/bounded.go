package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"samebit/backend"
	"samebit/nn"
	"samebit/qcc"
)

// boundedFlags replace a model's full attention by a window and an archive, or its
// caches by a sieve.
type boundedFlags struct {
	file   string
	window int
	share  bool
	exact  bool
	sieve  int
}

// register adds the flags of an adapter.
func (f *boundedFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.file, "adapter", "", "bound the model's memory by the adapter in `FILE`, made by calibrate")
	c.Flags().IntVar(&f.window, "window", 0, "bound the model's memory by a window of `N` tokens and an archive that nobody trained (0: do not)")
	c.Flags().BoolVar(&f.share, "share", false, "with --window: one archive per key head instead of one per query head")
}

// registerSieve adds that of commands which run any model of bounded memory.
func (f *boundedFlags) registerSieve(c *cobra.Command) {
	c.Flags().IntVar(&f.sieve, "sieve", 0, "bound the model's memory to `N` rows of every key head, a multiple of 64: the first, the last and the most unlike (0: do not)")
}

// registerExact adds that of commands which read a prompt and go on from it.
func (f *boundedFlags) registerExact(c *cobra.Command) {
	c.Flags().BoolVar(&f.exact, "exact-prompt", false, "with --adapter or --window: read prompts with full attention, and bound what follows")
}

// wanted reports whether there is an adapter.
func (f *boundedFlags) wanted() bool { return f.file != "" || f.window != 0 }

// check refuses values before anything is loaded.
func (f *boundedFlags) check(cached bool) error {
	switch {
	case f.file != "" && f.window != 0:
		return usagef("--adapter and --window exclude each other: an adapter has a window of its own")
	case f.window < 0:
		return usagef("--window %d: want a number of tokens, or 0 for full attention", f.window)
	case f.sieve < 0 || f.sieve%backend.Page != 0:
		return usagef("--sieve %d: want a multiple of %d, or 0 for full attention", f.sieve, backend.Page)
	case f.sieve != 0 && f.wanted():
		return usagef("--sieve excludes --adapter and --window: a model has one bounded memory")
	case f.share && f.window == 0:
		return usagef("--share goes with --window: an adapter says itself whether it shares")
	case f.exact && !f.wanted():
		return usagef("--exact-prompt goes with --adapter or --window")
	case f.exact && cached:
		return usagef("--exact-prompt and --cache exclude each other: what an exact prompt leaves is no checkpoint to resume from")
	}
	return nil
}

// adapter reads the file, or makes an adapter for a model.
func (f *boundedFlags) adapter(d *nn.Decoder) (*qcc.Adapter, error) {
	return f.adapterWith(d, func(*qcc.Config) {})
}

// adapterWith is adapter; set changes the configuration of one that is made.
func (f *boundedFlags) adapterWith(d *nn.Decoder, set func(c *qcc.Config)) (a *qcc.Adapter, err error) {
	if f.file == "" {
		r := qcc.Retrofit{KV: qcc.KVRepeat, ExactPrefill: f.exact}
		if f.share {
			r.KV = qcc.KVShare
		}
		if r.Config, err = qcc.ModelConfig(d); err != nil {
			return nil, err
		}
		r.Config.Window = f.window
		set(&r.Config)
		return qcc.NewAdapter(d, r, 0)
	}
	file, err := os.Open(f.file)
	if err != nil {
		return nil, fmt.Errorf("adapter: %w", err)
	}
	defer file.Close()
	if a, err = qcc.ReadAdapter(file); err != nil {
		return nil, fmt.Errorf("adapter %s: %w", f.file, err)
	}
	a.ExactPrefill = f.exact
	return a, nil
}

// load is loadDecoder of a model with keys and values of a type, whose memory may be
// bounded.
func (f *boundedFlags) load(ctx context.Context, dev backend.Device, kv *kvFlag, path string, progress func(done, total int64)) (*nn.Decoder, error) {
	d, err := loadDecoder(ctx, dev, path, kv.dtype(), progress)
	if err != nil {
		return nil, err
	}
	if f.sieve != 0 {
		s, err := qcc.Sieved(d, qcc.Sieve{Slots: f.sieve})
		if err != nil {
			d.Close()
			return nil, err
		}
		s.Closers = append(s.Closers, d.Close)
		return s, nil
	}
	if !f.wanted() {
		return d, nil
	}
	a, err := f.adapter(d)
	var p *qcc.Patched
	if err == nil {
		p, err = qcc.Patch(dev, d, a)
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	p.Decoder.Closers = append(p.Decoder.Closers, p.Close, d.Close)
	return p.Decoder, nil
}

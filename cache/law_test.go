package cache_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"samebit/cache"
	"samebit/nn"
	"samebit/state"
)

// plan is one random use of a cache.
type plan struct {
	seed    uint64
	cfg     cache.Config
	disk    bool
	restart bool // a second cache on the same folder half way
	workers int
	chunk   int
	batch   [][]request
}

type request struct {
	rows     []state.Row
	stateLen int
	tenant   string
}

func (p plan) String() string {
	return fmt.Sprintf("seed %d: memory %d, %v, policy %+v, disk %v of %d bytes, restart %v, %d workers, chunks of %d",
		p.seed, p.cfg.MemoryBytes, p.cfg.Order, p.cfg.Policy, p.disk, p.cfg.DiskBytes, p.restart, p.workers, p.chunk)
}

func pick[T any](rng *rand.Rand, l ...T) T { return l[rng.IntN(len(l))] }

// prompts are drawn from few documents, cut and edited at few places, so that
// they share prefixes, diverge in the middle, grow and shrink.
func prompt(rng *rand.Rand) []state.Row {
	doc, n := pick(rng, 0, 0, 0, 1, 2), pick(rng, 1, 16, 33, 64, 65, 100, 127, 128, 150)
	rows := make([]state.Row, n)
	for i := range rows {
		rows[i].Token = int32(3 + (doc*71+i*37+i*i%11)%290)
	}
	if edit := pick(rng, -1, -1, -1, 15, 64, 90, 126); edit >= 0 && edit < n {
		for i := edit; i < min(edit+pick(rng, 1, 150), n); i++ {
			rows[i].Token = int32(3 + (edit+i*13)%290)
		}
	}
	return rows
}

func makePlan(seed uint64) plan {
	rng := rand.New(rand.NewPCG(seed, 0xcac4e))
	p := plan{
		seed: seed, workers: 1 + rng.IntN(8), chunk: pick(rng, 5, 64, 512), disk: rng.IntN(3) == 0,
		cfg: cache.Config{
			MemoryBytes: pick(rng, int64(1), 300<<10, 600<<10, 1<<20, 2<<20, 4<<20, 0),
			DiskBytes:   pick(rng, int64(1), 400<<10, 2<<20, 0),
			Order:       pick(rng, cache.Cost, cache.LRU),
			Policy: cache.Policy{
				Stride: pick(rng, -1, 16, 32, 50), Tail: pick(rng, -1, 1, 5, 16), Align: pick(rng, 1, 1, 4, 16),
				MinPrefix: pick(rng, -1, 20), MaxChunk: pick(rng, 17, 64, 2048), Junction: pick(rng, -1, 1, 2),
			},
		},
	}
	p.restart = p.disk && rng.IntN(2) == 0
	for range 1 + rng.IntN(4) {
		var b []request
		for range pick(rng, 1, 1, 2, 3, 4, 16) {
			r := request{rows: prompt(rng), tenant: pick(rng, "", "", "", "", "", "", "b")}
			r.stateLen = pick(rng, len(r.rows), max(len(r.rows)-1, 0), len(r.rows)*3/4, rng.IntN(len(r.rows)+1))
			b = append(b, r)
		}
		p.batch = append(p.batch, b)
	}
	return p
}

// next is the row that every sequence decodes after its prompt, all in one pass.
var next = state.Row{Token: 5}

// Whatever the cache did, every logit that was computed has the bits of a cold
// run.
func TestCachedEqualsCold(t *testing.T) {
	plans := 300
	if testing.Short() {
		plans = 20
	}
	var ms []*model
	for _, name := range []string{"qwen3-tied-fp32", "qwen35-8l-bf16", "qwen3next-moe-fp32", "qwen3-tied-fp32" + bf16KV} {
		ms = append(ms, openModel(t, name))
	}
	var sum cache.Stats
	for i := range plans {
		p := makePlan(uint64(i))
		s := runPlan(t, ms[i%len(ms)], p)
		if t.Failed() {
			t.Fatal(p)
		}
		sum.Hits += s.Hits
		sum.Partial += s.Partial
		sum.Cold += s.Cold
		sum.Evicted += s.Evicted
		sum.Promotions += s.Promotions
		sum.Waits += s.Waits
		sum.TokensReused += s.TokensReused
		sum.StoreFault += s.StoreFault
	}
	t.Logf("%d hits, %d partial, %d cold, %d rows reused, %d evicted, %d from disk, %d waits", sum.Hits, sum.Partial, sum.Cold, sum.TokensReused, sum.Evicted, sum.Promotions, sum.Waits)
	if sum.Hits == 0 || sum.Partial == 0 || sum.Evicted == 0 || sum.Promotions == 0 || sum.TokensReused == 0 {
		t.Error("the plans do not exercise the cache")
	}
	if sum.StoreFault != 0 {
		t.Errorf("%d faults of the second tier", sum.StoreFault)
	}
}

func runPlan(t *testing.T, m *model, p plan) (sum cache.Stats) {
	t.Helper()
	ctx := context.Background()
	dir := t.TempDir()
	open := func() (*cache.Cache, error) {
		if p.disk {
			d, err := cache.OpenUnsynced(dir, p.cfg.DiskBytes)
			if err != nil {
				return nil, err
			}
			p.cfg.Store = d
		}
		return cache.New(m.pool, p.cfg)
	}
	c, err := open()
	if err != nil {
		t.Fatal(err)
	}
	shut := func() {
		s := c.Stats()
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
		f := c.Stats().StoreFault
		sum.Hits, sum.Partial, sum.Cold, sum.StoreFault = sum.Hits+s.Hits, sum.Partial+s.Partial, sum.Cold+s.Cold, sum.StoreFault+f
		sum.Evicted, sum.Promotions, sum.Waits, sum.TokensReused = sum.Evicted+s.Evicted, sum.Promotions+s.Promotions, sum.Waits+s.Waits, sum.TokensReused+s.TokensReused
		if s.Pinned != 0 || p.cfg.MemoryBytes > 0 && s.Bytes > p.cfg.MemoryBytes {
			t.Errorf("at rest %d bytes are used and %d pinned, of %d", s.Bytes, s.Pinned, p.cfg.MemoryBytes)
		}
	}
	for i, b := range p.batch {
		if i > 0 && p.restart {
			shut()
			if c, err = open(); err != nil {
				t.Fatal(err)
			}
		}
		runBatch(t, m, c, p, b)
	}
	shut()
	if n := m.pool.Bytes(); n != 0 {
		t.Errorf("%d bytes of pages and banks are left", n)
	}
	return sum
}

// runBatch prefills the requests with some workers and decodes one row of all in
// one pass.
func runBatch(t *testing.T, m *model, c *cache.Cache, p plan, batch []request) {
	t.Helper()
	ctx := context.Background()
	seqs := make([]*seq, len(batch))
	for i := range seqs {
		seqs[i] = m.seq(t, p.chunk)
		defer seqs[i].close()
	}
	work := make(chan int)
	var wg sync.WaitGroup
	for range p.workers {
		wg.Go(func() {
			for i := range work {
				r := batch[i]
				k := cache.Key{Model: m.dec.ID, Extra: cache.Domain{Tenant: r.tenant}.Extra()}
				rep, err := c.Prefill(ctx, k, seqs[i], r.rows, r.stateLen)
				if err != nil {
					t.Errorf("request %d: %v", i, err)
				} else if rep.Start+seqs[i].ran != len(r.rows) || rep.Start+rep.Computed != len(r.rows) {
					t.Errorf("request %d: starts at %d and runs %d of %d rows, report %+v", i, rep.Start, seqs[i].ran, len(r.rows), rep)
				}
			}
		})
	}
	for i := range batch {
		work <- i
	}
	close(work)
	wg.Wait()
	if t.Failed() {
		return
	}
	pass := make([]nn.Seq, len(batch))
	for i, q := range seqs {
		pass[i] = nn.Seq{State: q.State(), In: []state.Row{next}, Want: nn.WantLast}
	}
	nc := nn.NewCtx(seqs[0].stream, m.dev)
	defer nc.Close()
	if err := m.dec.Forward(ctx, nc, pass); err != nil {
		t.Fatal(err)
	}
	for i, q := range seqs {
		r := batch[i]
		want := m.run(t, append(slices.Clone(r.rows), next))
		for row, b := range q.bits {
			if b != want[row] {
				t.Errorf("request %d of %d rows with a prefix of %d: logits of row %d differ from a cold run", i, len(r.rows), r.stateLen, row)
				return
			}
		}
		if bitsOf(pass[i].Logits) != want[len(r.rows)] {
			t.Errorf("request %d of %d rows with a prefix of %d: the first decoded row differs from a cold run", i, len(r.rows), r.stateLen)
		}
	}
}

package cache_test

import (
	"context"
	"hash/maphash"
	"math"
	"strings"
	"sync"
	"testing"

	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/cache"
	"samebit/checkpoint"
	"samebit/nn"
	"samebit/qwen3"
	"samebit/state"
	"samebit/tensor"
)

const models = "../testdata/models/checkpoints/"

// bf16KV ends the names of models that keep keys and values in bf16.
const bf16KV = " kv=bf16"

var _ cache.Appender = (*nn.Runner)(nil)

// model is a decoder with a pool, and the bits that cold runs gave.
type model struct {
	dev  backend.Device
	dec  *nn.Decoder
	pool *state.Pool

	mu   sync.Mutex
	cold map[string][]uint64 // by the bytes of the rows: a hash of the logits after each
}

func openModel(t testing.TB, name string) *model {
	t.Helper()
	dev, err := cpu.New(cpu.Config{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	name, half := strings.CutSuffix(name, bf16KV)
	set, err := checkpoint.Open(models + name)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	cfg, err := qwen3.FromSet(set)
	if err != nil {
		t.Fatal(err)
	}
	dec, err := qwen3.Load(context.Background(), dev, cfg, set, qwen3.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if half {
		owner := dec
		if dec, err = dec.WithKV(tensor.BF16); err != nil {
			t.Fatal(err)
		}
		dec.Closers = append(dec.Closers, owner.Close)
	}
	pool, err := state.NewPool(dev, 0)
	if err != nil {
		t.Fatal(err)
	}
	m := &model{dev: dev, dec: dec, pool: pool, cold: map[string][]uint64{}}
	t.Cleanup(func() {
		if err := pool.Close(); err != nil {
			t.Error(err) // a page was not given back
		}
		dec.Close()
		dev.Close()
	})
	return m
}

// seq is a runner that notes the bits of the logits of every row it runs.
type seq struct {
	*nn.Runner
	stream backend.Stream
	bits   map[int]uint64 // by row
	ran    int
}

func (m *model) seq(t testing.TB, chunk int) *seq {
	t.Helper()
	s, err := m.dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	r, err := m.dec.NewRunner(s, m.pool, nn.RunnerConfig{ChunkRows: chunk})
	if err != nil {
		t.Fatal(err)
	}
	return &seq{Runner: r, stream: s, bits: map[int]uint64{}}
}

func (q *seq) close() {
	q.Runner.Close()
	q.stream.Close()
}

func (q *seq) Append(ctx context.Context, rows []state.Row) error {
	if len(rows) == 0 {
		return nil
	}
	at := q.Len()
	return q.AppendAll(ctx, rows, func(i int, l []float32) {
		q.bits[at+i] = bitsOf(l)
		q.ran++
	})
}

var seed = maphash.MakeSeed()

// bitsOf hashes logits; NaN are all equal.
func bitsOf(l []float32) uint64 {
	b := make([]byte, 0, 4*len(l))
	for _, v := range l {
		u := math.Float32bits(v)
		if v != v {
			u = 0x7fc00000
		}
		b = append(b, byte(u), byte(u>>8), byte(u>>16), byte(u>>24))
	}
	return maphash.Bytes(seed, b)
}

// run is the cold single run of rows: the bits of the logits after each.
func (m *model) run(t testing.TB, rows []state.Row) []uint64 {
	key := make([]byte, 0, 4*len(rows))
	for _, r := range rows {
		key = append(key, byte(r.Token), byte(r.Token>>8), byte(len(r.Vec)), 0)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if b, ok := m.cold[string(key)]; ok {
		return b
	}
	q := m.seq(t, 0)
	defer q.close()
	if err := q.Append(context.Background(), rows); err != nil {
		t.Fatal(err)
	}
	b := make([]uint64, len(rows))
	for i := range b {
		b[i] = q.bits[i]
	}
	m.cold[string(key)] = b
	return b
}

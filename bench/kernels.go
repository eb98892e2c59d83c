package bench

import (
	"context"
	"fmt"

	"samebit/backend"
	"samebit/internal/blockq"
	"samebit/state"
	"samebit/tensor"
)

// KernelConfig says which ops to measure. The zero value measures all.
type KernelConfig struct {
	Only    string  // "gemm", "gemv", "attention", "delta"; empty for all
	Seconds float64 // per case; 0 means 1

	KV tensor.DType // of keys and values of the attention cases: F32, which zero means too, or BF16
}

// ringBytes is how much weight a GEMV walks through, far more than a cache holds.
const ringBytes = 192 << 20

// Kernels measures single ops through a device's stream, as a model calls them.
// Every case is checked against nothing here: the bits are the business of the
// tests, which run the same ops.
func Kernels(ctx context.Context, dev backend.Device, cfg KernelConfig, emit func(Result)) error {
	if cfg.Seconds == 0 {
		cfg.Seconds = 1
	}
	s, err := dev.NewStream()
	if err != nil {
		return err
	}
	defer s.Close()
	k := &kernels{ctx: ctx, dev: dev, s: s, cfg: cfg, emit: emit}
	for _, part := range []struct {
		name string
		f    func() error
	}{{"gemm", k.gemm}, {"gemv", k.gemv}, {"attention", k.attention}, {"delta", k.delta}} {
		if cfg.Only != "" && cfg.Only != part.name {
			continue
		}
		if err := part.f(); err != nil {
			return fmt.Errorf("bench: %s: %w", part.name, err)
		}
	}
	return nil
}

type kernels struct {
	ctx  context.Context
	dev  backend.Device
	s    backend.Stream
	cfg  KernelConfig
	emit func(Result)
	bufs []tensor.Buffer
}

// values are small seeded numbers.
func values(n int, seed uint32) []float32 {
	v := make([]float32, n)
	x := seed*2654435761 + 1
	for i := range v {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		v[i] = float32(int32(x)) / (1 << 31)
	}
	return v
}

func (k *kernels) tensor(dim ...int) (tensor.Tensor, error) {
	n := 4
	for _, d := range dim {
		n *= d
	}
	b, err := k.dev.Alloc(n)
	if err != nil {
		return tensor.Tensor{}, err
	}
	k.bufs = append(k.bufs, b)
	t, err := tensor.New(b, 0, tensor.F32, dim...)
	if err != nil {
		return t, err
	}
	v := values(n/4, uint32(n))
	k.s.Write(t, tensor.AsBytes(v))
	return t, k.s.Sync()
}

func (k *kernels) free() {
	for _, b := range k.bufs {
		k.dev.Free(b)
	}
	k.bufs = nil
}

// weight packs seeded values in a storage type.
func (k *kernels) weight(dt tensor.DType, n, in int, seed uint32) (backend.Weight, error) {
	v := values(n*in, seed)
	var raw []byte
	switch dt {
	case tensor.F32:
		raw = tensor.AsBytes(v)
	case tensor.BF16, tensor.F16:
		raw = make([]byte, 2*len(v))
		for i, x := range v {
			h := blockq.F32ToBF16(x)
			if dt == tensor.F16 {
				h = blockq.F32ToF16(x)
			}
			raw[2*i], raw[2*i+1] = byte(h), byte(h>>8)
		}
	default:
		t, _ := blockq.Of(dt)
		raw = make([]byte, dt.Bytes(len(v)))
		if err := blockq.Quantize(raw, v, t); err != nil {
			// No encoder: repeat one valid block with small scales.
			for i := range raw {
				raw[i] = byte(i % 29)
			}
		}
	}
	t, err := tensor.New(tensor.Bytes(raw), 0, dt, n, in)
	if err != nil {
		return nil, err
	}
	return k.dev.Pack(t, backend.UseLinear)
}

func (k *kernels) result(test, shape, unit string) Result {
	i := k.dev.Info()
	return Result{Test: test, Shape: shape, Threads: i.Threads, Kernels: i.Kernels, Inexact: i.Inexact, Slow: i.Slow, Unit: unit}
}

// measure repeats f for the configured time, at least 5 times after a warm-up.
func (k *kernels) measure(r Result, work float64, f func()) error {
	f()
	for total := 0.0; total < k.cfg.Seconds || len(r.Wall) < 5; {
		if err := k.ctx.Err(); err != nil {
			return err
		}
		if err := r.timed(func() error { f(); return k.s.Sync() }); err != nil {
			return err
		}
		total += r.Wall[len(r.Wall)-1]
	}
	r.finish(work)
	k.emit(r)
	return nil
}

func (k *kernels) gemm() error {
	for _, dt := range []tensor.DType{tensor.F32, tensor.BF16, tensor.Q8_0, tensor.Q4_0} {
		for _, c := range []struct{ m, n, k int }{{512, 512, 512}, {1024, 1024, 1024}, {2048, 2048, 2048}, {4, 3072, 1024}, {32, 3072, 1024}, {128, 3072, 1024}, {512, 3072, 1024}} {
			w, err := k.weight(dt, c.n, c.k, 1)
			if err != nil {
				return err
			}
			x, err := k.tensor(c.m, c.k)
			if err != nil {
				return err
			}
			y, err := k.tensor(c.m, c.n)
			if err != nil {
				return err
			}
			r := k.result("gemm", fmt.Sprintf("%v %dx%dx%d", dt, c.m, c.n, c.k), "GFLOP/s")
			err = k.measure(r, 2*float64(c.m)*float64(c.n)*float64(c.k)/1e9, func() { k.s.Linear(y, x, w) })
			k.dev.Unpack(w)
			k.free()
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// gemv goes through a ring of weights, so that each is read from memory.
func (k *kernels) gemv() error {
	const n, in = 3072, 2048
	for _, dt := range []tensor.DType{tensor.F32, tensor.BF16, tensor.F16, tensor.Q8_0, tensor.Q4_0, tensor.Q4_1, tensor.Q5_0, tensor.Q5_1, tensor.Q2_K, tensor.Q3_K, tensor.Q4_K, tensor.Q5_K, tensor.Q6_K} {
		var ring []backend.Weight
		var bytes int64
		for bytes < ringBytes {
			w, err := k.weight(dt, n, in, uint32(len(ring)))
			if err != nil {
				return err
			}
			ring = append(ring, w)
			bytes += w.Bytes()
		}
		x, err := k.tensor(1, in)
		if err != nil {
			return err
		}
		y, err := k.tensor(1, n)
		if err != nil {
			return err
		}
		r := k.result("gemv", fmt.Sprintf("%v %dx%d", dt, n, in), "Gweights/s")
		r.Bytes = bytes
		err = k.measure(r, float64(len(ring))*n*in/1e9, func() {
			for _, w := range ring {
				k.s.Linear(y, x, w)
			}
		})
		for _, w := range ring {
			k.dev.Unpack(w)
		}
		k.free()
		if err != nil {
			return err
		}
	}
	return nil
}

// attnLayers is how many layers the keys of the attention cases have: enough that
// a decode step finds none of a layer's in a cache, as in a model.
const attnLayers = 8

func (k *kernels) attention() error {
	pool, err := state.NewPool(k.dev, 0)
	if err != nil {
		return err
	}
	for _, c := range []struct{ d, heads, group, past, rows int }{
		{64, 2, 4, 3584, 512}, {128, 2, 4, 3584, 512}, {64, 4, 2, 16383, 1}, {128, 2, 2, 16383, 1}, {64, 4, 4, 16383, 1}, {128, 2, 4, 16383, 1}, {128, 2, 1, 16383, 1},
	} {
		kv, err := state.NewKV(pool, state.ID{}, state.KVShape{Layers: attnLayers, Heads: c.heads, Dim: c.d, Type: k.cfg.KV})
		if err != nil {
			return err
		}
		if err := k.fill(kv, c.past+c.rows, c.heads, c.d); err != nil {
			return err
		}
		if _, err := kv.Truncate(c.past); err != nil {
			return err
		}
		var seg [1]backend.Seg
		seg[0].Rows = c.rows
		if err := kv.Begin(&seg[0], c.rows); err != nil {
			return err
		}
		q, err := k.tensor(c.rows, c.heads*c.group*c.d)
		if err != nil {
			return err
		}
		y, err := k.tensor(c.rows, c.heads*c.group*c.d)
		if err != nil {
			return err
		}
		kt, err := k.tensor(c.rows, c.heads*c.d)
		if err != nil {
			return err
		}
		p := k.s.Plan(seg[:])
		for l := range attnLayers {
			k.s.PutKV(p, l, kt.Heads(c.heads, c.d), kt.Heads(c.heads, c.d))
		}
		q, y = q.Heads(c.heads*c.group, c.d), y.Heads(c.heads*c.group, c.d)
		test, unit := "attention-prefill", "GFLOP/s"
		pairs := float64(c.rows)*float64(c.past) + float64(c.rows)*float64(c.rows+1)/2
		work := 4 * pairs * float64(c.heads*c.group*c.d) / 1e9
		if c.rows == 1 {
			test, unit = "attention-decode", "GB/s"
			work = float64(kv.Shape().Type.Bytes(2*(c.past+1)*c.heads*c.d)) / 1e9
		}
		shape := fmt.Sprintf("%d rows, %d keys, %dx%d heads of %d", c.rows, c.past+c.rows, c.heads, c.group, c.d)
		if dt := kv.Shape().Type; dt != tensor.F32 {
			shape += ", " + dt.String()
		}
		r := k.result(test, shape, unit)
		layer := 0
		err = k.measure(r, work, func() {
			k.s.Attention(y, q, p, layer, 0.125, 0)
			layer = (layer + 1) % attnLayers
		})
		kv.Release()
		k.free()
		if err != nil {
			return err
		}
	}
	return pool.Close()
}

// fill stores seeded keys and values.
func (k *kernels) fill(kv *state.KV, n, heads, d int) error {
	const rows = 512
	t, err := k.tensor(rows, heads*d)
	if err != nil {
		return err
	}
	for done := 0; done < n; {
		m := min(rows, n-done)
		var seg [1]backend.Seg
		seg[0].Rows = m
		if err := kv.Begin(&seg[0], m); err != nil {
			return err
		}
		v := t.Rows(0, m).Heads(heads, d)
		p := k.s.Plan(seg[:])
		for l := range attnLayers {
			k.s.PutKV(p, l, v, v)
		}
		if err := k.s.Sync(); err != nil {
			return err
		}
		kv.Commit(m)
		done += m
	}
	return nil
}

// delta measures a Gated DeltaNet layer of a 0.8B hybrid over 512 rows: its
// projections, and everything between them.
func (k *kernels) delta() error {
	const rows, hidden, heads, d, taps = 512, 1024, 16, 128, 4
	const kd, channels = heads * d, 3 * heads * d
	pool, err := state.NewPool(k.dev, 0)
	if err != nil {
		return err
	}
	st, err := state.NewDelta(pool, state.ID{}, state.DeltaShape{Layers: 1, Heads: heads, DK: d, DV: d, Taps: taps, Channels: channels})
	if err != nil {
		return err
	}
	var seg [1]backend.Seg
	seg[0].Rows = rows
	if err := st.Begin(&seg[0], rows); err != nil {
		return err
	}
	var w [3]backend.Weight
	for i, n := range []int{channels, kd, hidden} {
		in := hidden
		if i == 2 {
			in = kd
		}
		if w[i], err = k.weight(tensor.F32, n, in, uint32(i)); err != nil {
			return err
		}
		defer k.dev.Unpack(w[i])
	}
	var t [9]tensor.Tensor
	for i, dim := range [][]int{{rows, hidden}, {rows, channels}, {rows, channels}, {rows, kd}, {rows, kd}, {rows, kd}, {rows, heads}, {rows, heads}, {taps, channels}} {
		if t[i], err = k.tensor(dim...); err != nil {
			return err
		}
	}
	x, u, c, z, q, o, g, beta, conv := t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8]
	p := k.s.Plan(seg[:])
	r := k.result("delta-projections", "512 rows, 1024 wide, 16 heads of 128", "GFLOP/s")
	err = k.measure(r, 2*rows*hidden*(channels+2*kd)/1e9, func() {
		k.s.Linear(u, x, w[0])
		k.s.Linear(z, x, w[1])
		k.s.Linear(x, o, w[2])
	})
	if err != nil {
		return err
	}
	r = k.result("delta-rule", "512 rows, 16 heads of 128", "Mtokens·heads/s")
	view := func(t tensor.Tensor) tensor.Tensor { return t.Heads(heads, d) }
	k.s.Conv(c, u, conv, p, 0)
	k.s.L2Norm(view(q), view(c.Cols(0, kd)), 1e-6, 1)
	k.s.L2Norm(view(z), view(c.Cols(kd, 2*kd)), 1e-6, 1)
	k.s.DeltaGates(g, beta, g, beta, conv.Index(0).Rows(0, heads), conv.Index(1).Rows(0, heads))
	err = k.measure(r, rows*heads/1e6, func() {
		k.s.GatedDelta(view(o), view(q), view(z), view(c.Cols(2*kd, 3*kd)), g, beta, p, 0)
	})
	st.Release()
	k.free()
	if err != nil {
		return err
	}
	return pool.Close()
}

package bench

import (
	"context"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"samebit/backend"
	"samebit/tensor"
)

// limitBytes is read by each thread of ReadRate, far more than a cache holds.
const limitBytes = 96 << 20

// ReadRate returns how many bytes per second that many threads together read from
// memory: the best of the rounds that fit into d, at least one. A model whose
// weights are read once per token cannot be faster than this over their size.
func ReadRate(ctx context.Context, threads int, d time.Duration) (float64, error) {
	threads = max(threads, 1)
	mem := make([][]uint64, threads)
	each(threads, func(i int) { // touched by the thread that reads it
		mem[i] = make([]uint64, limitBytes/8)
		for j := range mem[i] {
			mem[i][j] = uint64(j)
		}
	})
	sums := make([]uint64, threads)
	best := 0.0
	for begin := time.Now(); best == 0 || time.Since(begin) < d; {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		start := time.Now()
		each(threads, func(i int) { sums[i] += sum(mem[i]) })
		best = max(best, float64(threads)*limitBytes/time.Since(start).Seconds())
	}
	for _, s := range sums {
		if s == 0 {
			return 0, fmt.Errorf("bench: the sum over 0, 1, 2, … is 0: this machine's memory is not to be trusted")
		}
	}
	return best, nil
}

// sum reads v in four independent chains.
func sum(v []uint64) uint64 {
	var a, b, c, d uint64
	for ; len(v) >= 8; v = v[8:] {
		a += v[0] + v[4]
		b += v[1] + v[5]
		c += v[2] + v[6]
		d += v[3] + v[7]
	}
	return a + b + c + d
}

// each runs f(0) … f(n-1) at the same time.
func each(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// ProductRate returns the float32 operations per second of exact products of 256
// rows with a [1024, 1024] weight on the device, a fused multiply-add counted as
// two: the best of the rounds that fit into d, at least one after a warm-up.
func ProductRate(ctx context.Context, dev backend.Device, d time.Duration) (float64, error) {
	const rows, n = 256, 1024
	s, err := dev.NewStream()
	if err != nil {
		return 0, err
	}
	defer s.Close()
	view := func(rows int) (tensor.Tensor, tensor.Buffer, error) {
		b, err := dev.Alloc(4 * rows * n)
		if err != nil {
			return tensor.Tensor{}, nil, err
		}
		t, err := tensor.New(b, 0, tensor.F32, rows, n)
		return t, b, err
	}
	x, xb, err := view(rows)
	if err != nil {
		return 0, err
	}
	defer dev.Free(xb)
	y, yb, err := view(rows)
	if err != nil {
		return 0, err
	}
	defer dev.Free(yb)
	v := values(n*n, 1)
	s.Write(x, unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), 4*rows*n))
	m, err := tensor.FromF32(v, n, n)
	if err != nil {
		return 0, err
	}
	w, err := dev.Pack(m, backend.UseLinear)
	if err != nil {
		return 0, err
	}
	defer dev.Unpack(w)
	best := 0.0
	for begin, i := time.Now(), 0; i < 2 || time.Since(begin) < d; i++ {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		start := time.Now()
		s.Linear(y, x, w)
		if err := s.Sync(); err != nil {
			return 0, err
		}
		if i > 0 {
			best = max(best, 2*rows*n*n/time.Since(start).Seconds())
		}
	}
	return best, nil
}

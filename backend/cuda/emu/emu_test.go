package emu

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"samebit/backend/cuda/driver"
	"samebit/internal/canon"
)

// bench is an emulated device with one stream and a module.
type bench struct {
	t   testing.TB
	dev *Device
	s   driver.Stream
	m   driver.Module
}

func open(t testing.TB, cfg Config, ptx string) *bench {
	t.Helper()
	c, err := New(cfg).Open(0)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, dev: c.(*Device)}
	if b.s, err = c.NewStream(); err != nil {
		t.Fatal(err)
	}
	if b.m, err = c.LoadModule("test", []byte(ptx)); err != nil {
		t.Fatal(err)
	}
	return b
}

func sample(t testing.TB) string {
	text, err := os.ReadFile("testdata/sample.ptx")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// alloc is uninitialised memory.
func (b *bench) alloc(bytes int) driver.Ptr {
	b.t.Helper()
	p, err := b.dev.Alloc(bytes)
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}

// in is memory that holds values.
func in[T any](b *bench, v []T) driver.Ptr {
	b.t.Helper()
	bytes, err := binary.Append(nil, binary.LittleEndian, v)
	if err != nil {
		b.t.Fatal(err)
	}
	p := b.alloc(max(1, len(bytes)))
	if err := b.dev.CopyIn(b.s, p, bytes); err != nil {
		b.t.Fatal(err)
	}
	return p
}

// out reads values.
func out[T any](b *bench, p driver.Ptr, n int) []T {
	b.t.Helper()
	v := make([]T, n)
	h, err := b.dev.AllocHost(max(1, binary.Size(v)))
	if err != nil {
		b.t.Fatal(err)
	}
	if err := b.dev.CopyOut(b.s, h[:binary.Size(v)], p); err != nil {
		b.t.Fatal(err)
	}
	if err := b.dev.Sync(b.s); err != nil {
		b.t.Fatal(err)
	}
	if _, err := binary.Decode(h, binary.LittleEndian, v); err != nil {
		b.t.Fatal(err)
	}
	if err := b.dev.FreeHost(h); err != nil {
		b.t.Fatal(err)
	}
	return v
}

// launch gives a kernel to the stream and runs it.
func (b *bench) launch(name string, l driver.Launch, p *driver.Params) error {
	b.t.Helper()
	f, err := b.dev.Function(b.m, name)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := b.dev.Launch(b.s, f, l, p.Bytes()); err != nil {
		return err
	}
	return b.dev.Sync(b.s)
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func dims(x, y, z uint32) [3]uint32 { return [3]uint32{x, y, z} }

func floats(r *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(r.IntN(2001)-1000) / 512
	}
	return v
}

func same(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) && (got[i] == got[i] || want[i] == want[i]) {
			t.Fatalf("%s: element %d is %08x, want %08x", what, i, math.Float32bits(got[i]), math.Float32bits(want[i]))
		}
	}
}

// gemm is the blocked chain of numerics.md 2.
func gemm(a, b []float32, m, n, k int) []float32 {
	c := make([]float32, m*n)
	for i := range m {
		for j := range n {
			var total float32
			for kb := 0; kb < k; kb += 128 {
				var acc float32
				for x := kb; x < min(kb+128, k); x++ {
					acc = canon.FMA32(a[i*k+x], b[j*k+x], acc)
				}
				total += acc
			}
			c[i*n+j] = total
		}
	}
	return c
}

// A compiler's product of matrices, with odd sizes, is the one of plain loops.
func TestCompiledGemm(t *testing.T) {
	b := open(t, Config{}, sample(t))
	for _, s := range [][3]int{{1, 1, 1}, {3, 5, 7}, {70, 90, 50}, {65, 63, 129}, {33, 130, 300}} {
		m, n, k := s[0], s[1], s[2]
		r := rand.New(rand.NewPCG(1, uint64(m)))
		x, w := floats(r, m*k), floats(r, n*k)
		c := b.alloc(4 * m * n)
		var p driver.Params
		p.Ptr(c).Ptr(in(b, x)).Ptr(in(b, w)).Int32(int32(m)).Int32(int32(n)).Int32(int32(k))
		b.must(b.launch("gemm", driver.Launch{Grid: dims(uint32(n+63)/64, uint32(m+63)/64, 1), Block: dims(256, 1, 1)}, &p))
		same(t, "gemm", out[float32](b, c, m*n), gemm(x, w, m, n, k))
	}
}

func BenchmarkGemm(b *testing.B) {
	x := open(b, Config{Workers: 1}, sample(b))
	const m, n, k = 128, 128, 128
	r := rand.New(rand.NewPCG(1, 2))
	c := x.alloc(4 * m * n)
	var p driver.Params
	normal := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(r.NormFloat64())
		}
		return v
	}
	p.Ptr(c).Ptr(in(x, normal(m*k))).Ptr(in(x, normal(n*k))).Int32(m).Int32(n).Int32(k)
	for b.Loop() {
		x.must(x.launch("gemm", driver.Launch{Grid: dims(2, 2, 1), Block: dims(256, 1, 1)}, &p))
	}
	counts := x.dev.Counts()["gemm"]
	b.ReportMetric(float64(counts.Instructions())/b.Elapsed().Seconds()/1e6, "Minst/s")
}

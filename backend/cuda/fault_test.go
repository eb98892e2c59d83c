package cuda_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/backend/cuda"
	"samebit/backend/cuda/driver"
	"samebit/backend/cuda/emu"
	"samebit/state"
	"samebit/tensor"
)

// faulty is a driver whose n-th call fails. What gives something back does its
// work before it fails, as a driver does that reports an older failure.
type faulty struct {
	driver.Driver
	calls atomic.Int64
	at    int64
	only  string // this call; empty: any
	code  driver.Result
	hit   string // the call that failed
}

type faultyContext struct {
	driver.Context
	f *faulty
}

func (f *faulty) fails(call string) error {
	if f.only != "" && f.only != call {
		return nil
	}
	if f.calls.Add(1) == f.at {
		f.hit = call
		return &driver.Error{Call: call, What: "object 7", Code: f.code, Name: "CUDA_ERROR_INJECTED"}
	}
	return nil
}

func (f *faulty) Open(i int) (driver.Context, error) {
	if err := f.fails("Open"); err != nil {
		return nil, err
	}
	c, err := f.Driver.Open(i)
	return &faultyContext{c, f}, err
}

func (c *faultyContext) LoadModule(name string, ptx []byte) (driver.Module, error) {
	if err := c.f.fails("LoadModule"); err != nil {
		return 0, err
	}
	return c.Context.LoadModule(name, ptx)
}

func (c *faultyContext) Function(m driver.Module, name string) (driver.Function, error) {
	if err := c.f.fails("Function"); err != nil {
		return 0, err
	}
	return c.Context.Function(m, name)
}

func (c *faultyContext) Alloc(n int) (driver.Ptr, error) {
	if err := c.f.fails("Alloc"); err != nil {
		return 0, err
	}
	return c.Context.Alloc(n)
}

func (c *faultyContext) AllocHost(n int) ([]byte, error) {
	if err := c.f.fails("AllocHost"); err != nil {
		return nil, err
	}
	return c.Context.AllocHost(n)
}

func (c *faultyContext) CopyIn(s driver.Stream, dst driver.Ptr, src []byte) error {
	if err := c.f.fails("CopyIn"); err != nil {
		return err
	}
	return c.Context.CopyIn(s, dst, src)
}

func (c *faultyContext) CopyOut(s driver.Stream, dst []byte, src driver.Ptr) error {
	if err := c.f.fails("CopyOut"); err != nil {
		return err
	}
	return c.Context.CopyOut(s, dst, src)
}

func (c *faultyContext) Copy(s driver.Stream, dst, src driver.Ptr, n int) error {
	if err := c.f.fails("Copy"); err != nil {
		return err
	}
	return c.Context.Copy(s, dst, src, n)
}

func (c *faultyContext) Fill(s driver.Stream, p driver.Ptr, v byte, n int) error {
	if err := c.f.fails("Fill"); err != nil {
		return err
	}
	return c.Context.Fill(s, p, v, n)
}

func (c *faultyContext) NewStream() (driver.Stream, error) {
	if err := c.f.fails("NewStream"); err != nil {
		return 0, err
	}
	return c.Context.NewStream()
}

func (c *faultyContext) Sync(s driver.Stream) error {
	return errors.Join(c.Context.Sync(s), c.f.fails("Sync"))
}

func (c *faultyContext) SetMaxShared(f driver.Function, bytes int) error {
	if err := c.f.fails("SetMaxShared"); err != nil {
		return err
	}
	return c.Context.SetMaxShared(f, bytes)
}

func (c *faultyContext) Launch(s driver.Stream, f driver.Function, l driver.Launch, p []byte) error {
	if err := c.f.fails("Launch"); err != nil {
		return err
	}
	return c.Context.Launch(s, f, l, p)
}

func (c *faultyContext) Free(p driver.Ptr) error {
	return errors.Join(c.Context.Free(p), c.f.fails("Free"))
}

func (c *faultyContext) FreeHost(b []byte) error {
	return errors.Join(c.Context.FreeHost(b), c.f.fails("FreeHost"))
}

func (c *faultyContext) UnloadModule(m driver.Module) error {
	return errors.Join(c.Context.UnloadModule(m), c.f.fails("UnloadModule"))
}

func (c *faultyContext) CloseStream(s driver.Stream) error {
	return errors.Join(c.Context.CloseStream(s), c.f.fails("CloseStream"))
}

func (c *faultyContext) Close() error {
	return errors.Join(c.Context.Close(), c.f.fails("Close"))
}

// life is everything a device does, from opening to closing.
func life(drv driver.Driver) (err error) {
	d, err := cuda.New(cuda.Config{Driver: drv})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	buf, err := d.Alloc(4 * 1000)
	if err != nil {
		return err
	}
	defer d.Free(buf)
	raw, err := tensor.FromF32(make([]float32, 40*40), 40, 40)
	if err != nil {
		return err
	}
	w, err := d.Pack(raw, backend.UseLinear)
	if err != nil {
		return err
	}
	defer d.Unpack(w)
	s, err := d.NewStream()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	all, err := tensor.New(buf, 0, tensor.F32, 1000)
	if err != nil {
		return err
	}
	view := func(from int, dim ...int) tensor.Tensor { // of the buffer
		n := 1
		for _, d := range dim {
			n *= d
		}
		return all.Rows(from, from+n).Reshape(dim...)
	}
	x, y := view(0, 2, 40), view(80, 2, 40)
	s.Write(x, make([]byte, 4*80))
	s.Linear(y, x, w)
	s.Copy(x, y)
	p := s.Plan([]backend.Seg{{Rows: 2, KV: []tensor.Tensor{view(200, 2, 1, 64, 2)}}})
	s.PutKV(p, 0, view(500, 2, 1, 2), view(504, 2, 1, 2))
	s.Attention(view(520, 2, 2, 2), view(540, 2, 2, 2), p, 0, 1, 0)
	s.Read(make([]byte, 4*80), y)
	return s.Sync()
}

// Every call of the driver may fail: the failure is reported with its call, and
// everything is given back.
func TestDriverFaults(t *testing.T) {
	base := emu.New(emu.Config{Workers: 1})
	ctx, err := base.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	watch := ctx.(*emu.Device)
	defer watch.Close()
	count := &faulty{Driver: base}
	if err := life(count); err != nil {
		t.Fatal(err)
	}
	n := count.calls.Load()
	if n < 50 {
		t.Fatalf("a device's life takes %d calls: too few to be all", n)
	}
	step := int64(1)
	if testing.Short() {
		step = 5
	}
	for at := int64(1); at <= n; at += step {
		f := &faulty{Driver: base, at: at, code: driver.LaunchFailed}
		checkFault(t, fmt.Sprintf("call %d", at), f, life(f))
		if held := watch.Held(); held != 0 {
			t.Fatalf("call %d, %s, fails: %d objects of the driver were not given back", at, f.hit, held)
		}
	}
}

// Out of memory while a model runs leaves its state as it was; the same rows then
// give the same bits.
func TestOutOfMemoryKeepsState(t *testing.T) {
	path := filepath.Join(models, "checkpoints", "qwen35-bf16")
	host, err := cpu.New(cpu.Config{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	want := newPlayer(t, host, path)
	want.play(20, 1)
	hit := 0
	step := int64(1)
	if testing.Short() {
		step = 4
	}
	for at := int64(1); at < 12; at += step {
		f := &faulty{Driver: emu.New(emu.Config{}), only: "Alloc", code: driver.OutOfMemory}
		d, err := cuda.New(cuda.Config{Driver: f})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		p := newPlayer(t, d, path)
		rows := make([]state.Row, 20)
		for i, r := range want.run.History()[:20] {
			rows[i].Token = r.Token
		}
		f.at = f.calls.Load() + at
		err = p.run.Append(context.Background(), rows)
		if f.calls.Load() >= f.at {
			hit++
			if !errors.Is(err, backend.ErrNoMemory) {
				t.Errorf("allocation %d fails and Append says %v", at, err)
			}
			if p.run.Len() != 0 {
				t.Errorf("allocation %d fails and %d rows are there", at, p.run.Len())
			}
		} else if err != nil {
			t.Fatal(err)
		}
		f.at = 0
		if err := p.run.Reset(); err != nil {
			t.Fatal(err)
		}
		p.play(20, 1)
		same(t, want.rows, p.rows)
	}
	if hit < 2 {
		t.Errorf("only %d allocations in Append were hit", hit)
	}
}

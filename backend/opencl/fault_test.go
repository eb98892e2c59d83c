package opencl

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"unsafe"

	"samebit/backend"
	"samebit/backend/opencl/internal/cl"
	"samebit/internal/testenv"
	"samebit/tensor"
	"samebit/tensor/tensortest"
)

// faulty counts the calls of an API and its living objects, and fails one call.
type faulty struct {
	api   cl.API
	at    int // number of the call that fails, 0 for none
	code  int32
	calls []string
	live  map[string]int
}

func newFaulty(api cl.API, at int, code int32) *faulty {
	return &faulty{api: api, at: at, code: code, live: map[string]int{}}
}

func (f *faulty) hit(call string) error {
	f.calls = append(f.calls, call)
	if len(f.calls) == f.at {
		return &cl.Error{Call: call, Code: f.code}
	}
	return nil
}

// failed says whether the call that should fail was reached.
func (f *faulty) failed() bool { return f.at > 0 && len(f.calls) >= f.at }

func made[H ~uintptr](f *faulty, call, kind string, make func() (H, error)) (H, error) {
	if err := f.hit(call); err != nil {
		return 0, err
	}
	h, err := make()
	if err == nil {
		f.live[kind]++
	}
	return h, err
}

// gone releases an object, also where the driver says that it could not.
func (f *faulty) gone(call, kind string, release func() error) error {
	f.live[kind]--
	return errors.Join(f.hit(call), release())
}

func done[T any](f *faulty, call string, do func() (T, error)) (T, error) {
	if err := f.hit(call); err != nil {
		var none T
		return none, err
	}
	return do()
}

func (f *faulty) do(call string, do func() error) error {
	if err := f.hit(call); err != nil {
		return err
	}
	return do()
}

func (f *faulty) Platforms() ([]cl.Platform, error) { return done(f, "Platforms", f.api.Platforms) }
func (f *faulty) PlatformInfo(p cl.Platform, w cl.Info) ([]byte, error) {
	return done(f, "PlatformInfo", func() ([]byte, error) { return f.api.PlatformInfo(p, w) })
}
func (f *faulty) Devices(p cl.Platform) ([]cl.Device, error) {
	return done(f, "Devices", func() ([]cl.Device, error) { return f.api.Devices(p) })
}
func (f *faulty) DeviceInfo(d cl.Device, w cl.Info) ([]byte, error) {
	return done(f, "DeviceInfo", func() ([]byte, error) { return f.api.DeviceInfo(d, w) })
}
func (f *faulty) CreateContext(d cl.Device) (cl.Context, error) {
	return made(f, "CreateContext", "context", func() (cl.Context, error) { return f.api.CreateContext(d) })
}
func (f *faulty) ReleaseContext(c cl.Context) error {
	return f.gone("ReleaseContext", "context", func() error { return f.api.ReleaseContext(c) })
}
func (f *faulty) CreateQueue(c cl.Context, d cl.Device) (cl.Queue, error) {
	return made(f, "CreateQueue", "queue", func() (cl.Queue, error) { return f.api.CreateQueue(c, d) })
}
func (f *faulty) ReleaseQueue(q cl.Queue) error {
	return f.gone("ReleaseQueue", "queue", func() error { return f.api.ReleaseQueue(q) })
}
func (f *faulty) CreateProgram(c cl.Context, text string) (cl.Program, error) {
	return made(f, "CreateProgram", "program", func() (cl.Program, error) { return f.api.CreateProgram(c, text) })
}
func (f *faulty) BuildProgram(p cl.Program, d cl.Device, o string) error {
	return f.do("BuildProgram", func() error { return f.api.BuildProgram(p, d, o) })
}
func (f *faulty) BuildLog(p cl.Program, d cl.Device) (string, error) {
	return done(f, "BuildLog", func() (string, error) { return f.api.BuildLog(p, d) })
}
func (f *faulty) ReleaseProgram(p cl.Program) error {
	return f.gone("ReleaseProgram", "program", func() error { return f.api.ReleaseProgram(p) })
}
func (f *faulty) CreateKernel(p cl.Program, name string) (cl.Kernel, error) {
	return made(f, "CreateKernel", "kernel", func() (cl.Kernel, error) { return f.api.CreateKernel(p, name) })
}
func (f *faulty) ReleaseKernel(k cl.Kernel) error {
	return f.gone("ReleaseKernel", "kernel", func() error { return f.api.ReleaseKernel(k) })
}
func (f *faulty) SetArg(k cl.Kernel, i int, size uintptr, v unsafe.Pointer) error {
	return f.do("SetArg", func() error { return f.api.SetArg(k, i, size, v) })
}
func (f *faulty) CreateBuffer(c cl.Context, n int64) (cl.Mem, error) {
	return made(f, "CreateBuffer", "buffer", func() (cl.Mem, error) { return f.api.CreateBuffer(c, n) })
}
func (f *faulty) ReleaseBuffer(m cl.Mem) error {
	return f.gone("ReleaseBuffer", "buffer", func() error { return f.api.ReleaseBuffer(m) })
}
func (f *faulty) Read(q cl.Queue, dst []byte, m cl.Mem, off int64) error {
	return f.do("Read", func() error { return f.api.Read(q, dst, m, off) })
}
func (f *faulty) Write(q cl.Queue, m cl.Mem, off int64, src []byte) error {
	return f.do("Write", func() error { return f.api.Write(q, m, off, src) })
}
func (f *faulty) Fill(q cl.Queue, m cl.Mem, off, n int64) error {
	return f.do("Fill", func() error { return f.api.Fill(q, m, off, n) })
}
func (f *faulty) Launch(q cl.Queue, k cl.Kernel, global, local *[3]uintptr) error {
	return f.do("Launch", func() error { return f.api.Launch(q, k, global, local) })
}
func (f *faulty) Finish(q cl.Queue) error {
	return f.do("Finish", func() error { return f.api.Finish(q) })
}

// session is a life with a device: what fails once is tried again, and works then.
type session struct {
	t      *testing.T
	f      *faulty
	errors int
}

// again calls do until it works, which is at the second time at the latest.
func (x *session) again(what string, do func() error) {
	x.t.Helper()
	err := do()
	if err == nil {
		return
	}
	x.blame(what, err)
	if err := do(); err != nil {
		x.t.Fatalf("%s fails again: %v", what, err)
	}
}

// blame checks that an error is the one that was put in.
func (x *session) blame(what string, err error) {
	x.t.Helper()
	var e *cl.Error
	if x.errors++; !errors.As(err, &e) || e.Code != x.f.code || !x.f.failed() {
		x.t.Fatalf("%s: %v is not the failure of call %d", what, err, x.f.at)
	}
}

// run plays the session and returns what the ops wrote.
func (x *session) run() []float32 {
	t := x.t
	var d *Device
	x.again("New", func() (err error) {
		d, err = open(x.f, Config{})
		if err != nil && !allGone(x.f.live) {
			t.Errorf("New failed with %v and left %v", err, x.f.live)
		}
		return err
	})
	var s backend.Stream
	x.again("NewStream", func() (err error) { s, err = d.NewStream(); return err })
	alloc := func(dt tensor.DType, dim ...int) (r tensor.Tensor) {
		n := 1
		for _, v := range dim {
			n *= v
		}
		x.again("Alloc", func() error {
			b, err := d.Alloc(4 * n)
			if err != nil {
				return err
			}
			r, err = tensor.New(b, 0, dt, dim...)
			return err
		})
		return r
	}
	f := func(dim ...int) tensor.Tensor { return alloc(tensor.F32, dim...) }
	r := tensortest.NewRand(3, "faults")
	pack := func(n, k int) (w backend.Weight) {
		v, err := tensor.FromF32(r.F32(tensortest.Ordinary, n*k), n, k)
		if err != nil {
			t.Fatal(err)
		}
		x.again("Pack", func() (err error) { w, err = d.Pack(v, backend.UseLinear|backend.UseEmbed); return err })
		return w
	}
	const rows, c, heads, slots = 3, 130, 2, 70
	table, up, down := pack(5, c), pack(20, c), pack(c, 20)
	ids, chosen := alloc(tensor.I32, rows), alloc(tensor.I32, rows, 1)
	h, y, z, o, weights := f(rows, c), f(rows, c), f(rows, 5), f(rows, c), f(rows, 1)
	seg := backend.Seg{Rows: rows, Slot: slots, Pos: slots, KV: []tensor.Tensor{f(2, heads, backend.Page, c/heads), f(2, heads, backend.Page, c/heads)}}
	seg.Archive = &backend.ArchiveSeg{Slot: slots, Window: []tensor.Tensor{f(2, heads, backend.Page, c/heads), f(2, heads, backend.Page, c/heads)},
		In:  backend.ArchiveBank{Num: f(1, heads, 2, c/heads), Den: f(1, heads, 2)},
		Out: backend.ArchiveBank{Num: f(1, heads, 2, c/heads), Den: f(1, heads, 2)}}
	archive := &backend.ArchiveParams{WindowParams: backend.WindowParams{Scale: 0.125, Window: 8}, Codes: f(heads, 2, c/heads), Mix: f(heads, 2, 1), Decay: []float32{0.5}, Gain: []float32{0.25}}
	dw, total, remote := f(5, c), f(1), f(rows, c)
	rope, err := backend.NewRoPE(1e4, 64, backend.Scaling{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ops := func() error {
		s.Write(ids, tensor.AsBytes([]int32{4, 0, 2}))
		s.Write(weights, tensor.AsBytes([]float32{0.5, 2, 1}))
		s.Embed(h, table, ids)
		s.Linear(z, h, table)
		s.ArgMax(ids, z)
		p := s.Plan([]backend.Seg{seg})
		q := h.Heads(heads, c/heads)
		s.NormRoPE(y.Heads(heads, c/heads), q, tensor.Tensor{}, 0, rope, p)
		s.PutKV(p, 0, q, q)
		s.Attention(o.Heads(heads, c/heads), y.Heads(heads, c/heads), p, 0, 0.125, rows)
		s.(backend.Archive).PutWindow(p, 0, q, q, tensor.Tensor{})
		s.(backend.Archive).ArchiveScan(remote.Heads(heads, c/heads), q, p, 0, archive)
		s.(backend.Grad).WeightGrad(dw, z, h, p)
		s.(backend.Grad).SumSquares(total, dw)
		s.Route(chosen, weights, z, 1, false)
		s.Experts(y, o, chosen, weights, []backend.Weight{up, up, up, up, up}, []backend.Weight{up, up, up, up, up}, []backend.Weight{down, down, down, down, down})
		return s.Sync()
	}
	got := make([]float32, rows*c)
	x.again("the ops", func() error {
		if err := ops(); err != nil {
			return x.reset(s, err)
		}
		s.Read(tensor.AsBytes(got), y)
		if err := s.Sync(); err != nil {
			return x.reset(s, err)
		}
		return nil
	})
	d.Unpack(up)
	for _, v := range []tensor.Tensor{h, y, z, o} {
		b, _ := v.Buffer()
		d.Free(b)
	}
	if err := s.Close(); err != nil {
		x.blame("the stream's Close", err)
	}
	if err := d.Close(); err != nil {
		x.blame("Close", err)
	}
	if !allGone(x.f.live) {
		t.Errorf("after Close %v are left", x.f.live)
	}
	return got
}

// reset checks that a failure sticks until Reset, which may be what fails.
func (x *session) reset(s backend.Stream, err error) error {
	x.t.Helper()
	before := len(x.f.calls)
	s.Add(tensor.Tensor{}, tensor.Tensor{}, tensor.Tensor{})
	s.Plan(nil)
	if len(x.f.calls) != before || s.Err() == nil || s.Err().Error() != err.Error() {
		x.t.Fatalf("the failure %v does not stick: %v", err, s.Err())
	}
	if s.Reset(); s.Err() != nil {
		x.t.Fatalf("Reset after %v: %v", err, s.Err())
	}
	return err
}

func allGone(live map[string]int) bool {
	for _, n := range live {
		if n != 0 {
			return false
		}
	}
	return true
}

// Every call of a life with a device fails once, with several codes: the failure is
// reported where it happens, nothing is left behind, and the next try works.
func TestFaults(t *testing.T) {
	all := newFaulty(newFake(), 0, 0)
	(&session{t: t, f: all}).run()
	count := map[string]int{}
	for _, c := range all.calls {
		count[c]++
	}
	t.Logf("%d calls: %v", len(all.calls), count)
	for at := 1; at <= len(all.calls); at++ {
		for _, code := range []int32{cl.OutOfResources, cl.InvalidValue} {
			t.Run(fmt.Sprintf("%d/%s/%d", at, all.calls[at-1], code), func(t *testing.T) {
				x := &session{t: t, f: newFaulty(newFake(), at, code)}
				x.run()
				if !x.f.failed() {
					t.Fatalf("there were only %d calls", len(x.f.calls))
				}
				if call := all.calls[at-1]; x.errors == 0 && !harmless(call, code) {
					t.Errorf("nobody was told that %s failed", call)
				}
			})
		}
	}
}

// harmless are failures that need no report: a slab is made smaller where memory is
// short, and a buffer of a slab that holds nothing cannot be released twice.
func harmless(call string, code int32) bool {
	return code == cl.OutOfResources && (call == "CreateBuffer" || call == "Fill" || call == "Finish") || call == "ReleaseBuffer"
}

// On a real device the results after a failure are those without one.
func TestFaultsOnDevice(t *testing.T) {
	api, err := cl.Load()
	if err != nil {
		testenv.Missing(t, "opencl", err.Error())
	}
	all := newFaulty(api, 0, 0)
	d, err := open(api, Config{})
	if err != nil {
		testenv.Missing(t, "opencl", err.Error())
	}
	d.Close()
	want := (&session{t: t, f: all}).run()
	last := map[string]int{}
	for i, c := range all.calls {
		last[c] = i + 1
	}
	for call, at := range maps.All(last) {
		t.Run(call, func(t *testing.T) {
			x := &session{t: t, f: newFaulty(api, at, cl.InvalidValue)}
			if d := tensortest.DiffBits(want, x.run()); d != "" {
				t.Error(d)
			}
		})
	}
}

package emu

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"samebit/backend"
	"samebit/backend/cuda/driver"
)

// add1 adds one to n words.
const add1 = `.version 7.0
.target sm_75
.address_size 64
.visible .entry add1(.param .u64 p, .param .u32 n)
{
	.reg .b32 %r<8>;
	.reg .b64 %l<4>;
	.reg .pred %p;
	ld.param.u64 %l0, [p];
	ld.param.u32 %r0, [n];
	mov.u32 %r1, %tid.x;
	setp.ge.u32 %p, %r1, %r0;
	@%p ret;
	mul.wide.u32 %l1, %r1, 4;
	add.s64 %l2, %l0, %l1;
	ld.global.u32 %r2, [%l2];
	add.u32 %r2, %r2, 1;
	st.global.u32 [%l2], %r2;
	ret;
}
`

func (b *bench) give(f driver.Function, p driver.Ptr, n int) {
	b.t.Helper()
	var v driver.Params
	v.Ptr(p).Int32(int32(n))
	b.must(b.dev.Launch(b.s, f, driver.Launch{Grid: dims(1, 1, 1), Block: dims(32, 1, 1)}, v.Bytes()))
}

// Work runs when the stream is synchronised: a staging buffer that changes before
// is seen as it is then.
func TestStreamsAreLate(t *testing.T) {
	b := open(t, Config{}, add1)
	f, err := b.dev.Function(b.m, "add1")
	b.must(err)
	h, err := b.dev.AllocHost(16)
	b.must(err)
	p := b.alloc(16)
	copy(h, "\x01\x00\x00\x00\x02\x00\x00\x00\x03\x00\x00\x00\x04\x00\x00\x00")
	b.must(b.dev.CopyIn(b.s, p, h))
	b.give(f, p, 4)
	b.must(b.dev.CopyOut(b.s, h[:8], p+8))
	h[0] = 100 // too early
	if h[4] != 2 {
		t.Error("the copy was not late")
	}
	b.must(b.dev.Sync(b.s))
	if h[0] != 4 || h[4] != 5 {
		t.Errorf("the words are %v", h[:8])
	}
	if got := out[uint32](b, p, 4); fmt.Sprint(got) != "[101 3 4 5]" {
		t.Errorf("the words are %v", got)
	}
	// Other memory is read when the call is made.
	v := []byte{9, 0, 0, 0}
	b.must(b.dev.CopyIn(b.s, p, v))
	v[0] = 1
	if got := out[uint32](b, p, 1)[0]; got != 9 {
		t.Errorf("the word is %d", got)
	}
	if err := b.dev.CopyOut(b.s, v, p); !errors.Is(err, driver.ErrKernel) {
		t.Errorf("CopyOut to other memory: %v", err)
	}
}

// A captured sequence runs as often as it is launched, and reads staging memory
// anew each time.
func TestGraphs(t *testing.T) {
	b := open(t, Config{}, add1)
	f, err := b.dev.Function(b.m, "add1")
	b.must(err)
	h, err := b.dev.AllocHost(8)
	b.must(err)
	p, q := b.alloc(8), b.alloc(8)
	b.must(b.dev.BeginCapture(b.s))
	b.must(b.dev.CopyIn(b.s, p, h[:4]))
	b.must(b.dev.Fill(b.s, p+4, 2, 4))
	b.give(f, p, 2)
	b.must(b.dev.Copy(b.s, q, p, 8))
	b.give(f, q, 1)
	b.must(b.dev.CopyOut(b.s, h[4:], q))
	g, err := b.dev.EndCapture(b.s)
	b.must(err)
	b.must(b.dev.Sync(b.s))
	if b.dev.Counts()["add1"].Launches != 0 {
		t.Error("the capture ran")
	}
	x, err := b.dev.Instantiate(g)
	b.must(err)
	b.must(b.dev.CloseGraph(g))
	for i := range byte(5) {
		h[0] = 10 * i
		b.must(b.dev.LaunchGraph(b.s, x))
		b.must(b.dev.Sync(b.s))
		if h[4] != 10*i+2 {
			t.Errorf("launch %d gave %d", i, h[4])
		}
	}
	if got := out[uint32](b, q, 2); got[1] != 0x02020203 {
		t.Errorf("the words are %x", got)
	}
	if c := b.dev.Counts()["add1"]; c.Launches != 10 {
		t.Errorf("%d launches", c.Launches)
	}
	b.must(b.dev.CloseExec(x))

	b.must(b.dev.BeginCapture(b.s))
	if err := b.dev.Sync(b.s); err == nil {
		t.Error("Sync during a capture")
	}
	if _, err := b.dev.EndCapture(b.s); !errors.Is(err, driver.ErrKernel) {
		t.Errorf("the end of a capture that Sync broke: %v", err)
	}
	b.must(b.dev.BeginCapture(b.s))
	if err := b.dev.CopyIn(b.s, p, []byte{1}); !errors.Is(err, driver.ErrKernel) {
		t.Errorf("CopyIn of other memory during a capture: %v", err)
	}
	if _, err := b.dev.EndCapture(b.s); err != nil {
		t.Error(err)
	}
	if _, err := b.dev.EndCapture(b.s); !errors.Is(err, driver.ErrKernel) {
		t.Errorf("an end without a beginning: %v", err)
	}
}

// Nothing is held when everything was given back, and a handle that was given back
// is refused.
func TestHandles(t *testing.T) {
	d := New(Config{Devices: 2, Memory: 1000})
	if n, err := d.Count(); n != 2 || err != nil {
		t.Error(n, err)
	}
	if _, err := d.Open(2); !errors.Is(err, driver.ErrNoDevice) || !errors.Is(err, backend.ErrNoDevice) {
		t.Errorf("device 2 of 2: %v", err)
	}
	if _, err := New(Config{Devices: -1}).Count(); !errors.Is(err, driver.ErrNoDevice) {
		t.Errorf("no devices: %v", err)
	}
	c, err := d.Open(1)
	if err != nil {
		t.Fatal(err)
	}
	v := c.(*Device)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	closed := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, driver.ErrClosed) || !errors.Is(err, backend.ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	m, err := c.LoadModule("m", []byte(add1))
	must(err)
	s, err := c.NewStream()
	must(err)
	e, err := c.NewEvent()
	must(err)
	p, err := c.Alloc(600)
	must(err)
	h, err := c.AllocHost(8)
	must(err)
	if n := v.Held(); n != 5 {
		t.Errorf("%d things are held", n)
	}
	if _, err := c.Alloc(401); !errors.Is(err, driver.ErrOutOfMemory) || !errors.Is(err, backend.ErrNoMemory) || !strings.Contains(err.Error(), "400 of 1000") {
		t.Errorf("too much memory: %v", err)
	}
	if free, total, err := c.MemInfo(); free != 400 || total != 1000 || err != nil {
		t.Error(free, total, err)
	}
	if _, err := c.Elapsed(e, e); err == nil {
		t.Error("the time of an event that was not recorded")
	}
	must(c.Record(e, s))
	must(c.Sync(s))
	if d, err := c.Elapsed(e, e); d != 0 || err != nil {
		t.Error(d, err)
	}
	closed("Free inside an allocation", c.Free(p+8))
	must(c.Free(p))
	closed("Free twice", c.Free(p))
	if err := c.Fill(s, p, 0, 8); err == nil || !strings.Contains(err.Error(), "was freed") {
		t.Errorf("Fill after Free: %v", err)
	}
	if q, err := c.Alloc(1000); err != nil || q == p {
		t.Errorf("memory after Free: %v %v", q, err)
	} else {
		if err := c.Fill(s, q+990, 0, 11); err == nil || !strings.Contains(err.Error(), "past the end") {
			t.Errorf("Fill past the end: %v", err)
		}
		if err := c.Copy(s, q, q+10, 20); err == nil || !strings.Contains(err.Error(), "overlap") {
			t.Errorf("Copy onto itself: %v", err)
		}
		must(c.Free(q))
	}
	must(c.FreeHost(h))
	closed("FreeHost twice", c.FreeHost(h))
	must(c.CloseEvent(e))
	closed("CloseEvent twice", c.CloseEvent(e))
	closed("Record", c.Record(e, s))
	must(c.CloseStream(s))
	closed("CloseStream twice", c.CloseStream(s))
	closed("Sync", c.Sync(s))
	f, err := c.Function(m, "add1")
	must(err)
	must(c.UnloadModule(m))
	closed("UnloadModule twice", c.UnloadModule(m))
	closed("Function", func() error { _, err := c.Function(m, "add1"); return err }())
	closed("FuncInfo", func() error { _, err := c.FuncInfo(f); return err }())
	closed("CloseGraph", c.CloseGraph(99))
	closed("Instantiate", func() error { _, err := c.Instantiate(99); return err }())
	closed("LaunchGraph", c.LaunchGraph(99, 99))
	closed("CloseExec", c.CloseExec(99))
	if n := v.Held(); n != 0 {
		t.Errorf("%d things are held", n)
	}
	must(c.Close())
	closed("Alloc after Close", func() error { _, err := c.Alloc(1); return err }())
	closed("Close twice", c.Close())
}

// Memory that was given up is read only after it was written again, in the order of
// the stream.
func TestForget(t *testing.T) {
	b := open(t, Config{}, add1)
	f, err := b.dev.Function(b.m, "add1")
	b.must(err)
	p := b.alloc(64)
	b.must(b.dev.Fill(b.s, p, 0, 64))
	b.give(f, p, 16)
	b.must(b.dev.Forget(b.s, p, 60))
	b.must(b.dev.CopyIn(b.s, p, make([]byte, 32)))
	b.give(f, p, 8)
	b.must(b.dev.Sync(b.s))
	if err := b.dev.Forget(b.s, p, 65); !errors.Is(err, driver.ErrKernel) {
		t.Errorf("Forget beyond the end gives %v", err)
	}
	b.give(f, p, 9)
	var fault *Fault
	if err := b.dev.Sync(b.s); !errors.As(err, &fault) || fault.Kind != Uninitialised || fault.Thread != [3]uint32{8} {
		t.Errorf("a read of what was given up gives %v", err)
	}
}

// A kernel that uses memory after Free is told so.
func TestUseAfterFree(t *testing.T) {
	b := open(t, Config{}, add1)
	p := in(b, []uint32{1})
	b.must(b.dev.Free(p))
	var v driver.Params
	v.Ptr(p).Int32(1)
	err := b.launch("add1", driver.Launch{Grid: dims(1, 1, 1), Block: dims(32, 1, 1)}, &v)
	var f *Fault
	if !errors.As(err, &f) || f.Kind != UseAfterFree {
		t.Errorf("the error is %v", err)
	}
}

// The counts of a kernel that can be counted by hand. Its blocks change the same
// words, so they run one after another.
func TestCounts(t *testing.T) {
	b := open(t, Config{Workers: 1}, add1)
	p := in(b, make([]uint32, 100))
	var v driver.Params
	v.Ptr(p + 4).Int32(20)
	b.must(b.launch("add1", driver.Launch{Grid: dims(3, 1, 1), Block: dims(64, 1, 1)}, &v))
	c := b.dev.Counts()["add1"]
	want := Counts{Launches: 1, Blocks: 3, Warps: 6, GlobalRead: 3 * 80, GlobalWritten: 3 * 80, ReadSectors: 9, WriteSectors: 9}
	want.Issued = [Classes]int64{Integer: 6 + 3*3, Move: 6 * 3, Global: 6, Branch: 6 + 3}
	want.Threads = [Classes]int64{Integer: 192 + 60*3, Move: 192 * 3, Global: 120, Branch: 192 + 60}
	if c != want {
		t.Errorf("counts are\n%+v, want\n%+v", c, want)
	}
	if c.Instructions() != 192*5+60*6 {
		t.Errorf("%d instructions", c.Instructions())
	}
	b.dev.ResetCounts()
	if len(b.dev.Counts()) != 0 {
		t.Error("counts after ResetCounts")
	}
}

// Passes over the banks of shared memory, as the hardware's rules have them.
func TestBankConflicts(t *testing.T) {
	for _, c := range []struct {
		body           string
		passes, extras int64
	}{
		{"st.shared.u32 [%r11], %r1;", 1, 0},
		{"shl.b32 %r4, %r1, 3; add.u32 %r4, %r4, %r10; st.shared.u32 [%r4], %r1;", 2, 1},
		{"shl.b32 %r4, %r1, 7; add.u32 %r4, %r4, %r10; st.shared.u32 [%r4], %r1;", 32, 31},
		{"mul.lo.u32 %r4, %r1, 132; add.u32 %r4, %r4, %r10; st.shared.u32 [%r4], %r1;", 1, 0},
		{"shl.b32 %r4, %r1, 4; add.u32 %r4, %r4, %r10; st.shared.v4.u32 [%r4], {%r1, %r1, %r1, %r1};", 4, 0},
		{"shl.b32 %r4, %r1, 3; add.u32 %r4, %r4, %r10; st.shared.v2.u32 [%r4], {%r1, %r1};", 2, 0},
		{"shl.b32 %r4, %r1, 5; add.u32 %r4, %r4, %r10; st.shared.v4.u32 [%r4], {%r1, %r1, %r1, %r1};", 8, 4},
		{"add.u32 %r4, %r10, %r1; st.shared.u8 [%r4], %r1;", 1, 0},
	} {
		b := open(t, Config{}, strings.Replace(head, "mem[1024]", "mem[8192]", 1)+c.body+"\nret;\n}\n")
		var p driver.Params
		p.Ptr(0).Ptr(0).Uint32(0)
		b.must(b.launch("k", driver.Launch{Grid: dims(1, 1, 1), Block: dims(32, 1, 1)}, &p))
		if n := b.dev.Counts()["k"]; n.SharedPasses != c.passes || n.SharedConflicts != c.extras {
			t.Errorf("%s: %d passes, %d conflicts, want %d and %d", c.body, n.SharedPasses, n.SharedConflicts, c.passes, c.extras)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(add1)
	f.Add(head + "L: @!%p1 bra L; {.reg .f32 %x; mov.f32 %x, 0f3F800000;} T: .branchtargets L, L; brx.idx %r1, T;\nret;\n}\n")
	f.Add(".version 7.0\n.target sm_75\n.global .align 8 .b8 x[4] = {1, -1};\n.extern .shared .b8 y[];\n")
	f.Add(".version 7.0\n.target sm_75\n.visible .entry k(.param .align 8 .b8 p[16]) .maxntid 8, 8 { ld.param.v2.u32 {_, _}, [p+8]; }")
	f.Add(head + "atom.shared.cas.b32 %r4, [mem+4], %r1, %r2; setp.lt.or.f32 %p1|%p2, %r1, 0f00000000, !%p3; vote.sync.ballot.b32 %r1, %p1, -1;}")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1<<14 {
			return
		}
		for range Mutants(text) {
		}
		Check(text)
		c, err := New(Config{Memory: 1 << 16, Steps: 200, Workers: 1}).Open(0)
		if err != nil {
			t.Fatal(err)
		}
		m, err := c.LoadModule("fuzz", []byte(text))
		if err != nil {
			if !errors.Is(err, driver.ErrKernel) && !errors.Is(err, driver.ErrOutOfMemory) {
				t.Fatalf("the error is %v", err)
			}
			return
		}
		v := c.(*Device)
		s, _ := c.NewStream()
		for name, p := range v.modules[m].progs {
			fn, err := c.Function(m, name)
			if err != nil {
				t.Fatal(err)
			}
			l := driver.Launch{Grid: dims(1, 1, 1), Block: dims(33, 1, 1)}
			if c.Launch(s, fn, l, make([]byte, p.psize)) == nil {
				c.Sync(s)
			}
		}
	})
}

package emu

import (
	"errors"
	"strings"
	"testing"

	"samebit/backend/cuda/driver"
)

// head begins a kernel of two pointers p and q, a count n and the thread t.
const head = `.version 7.0
.target sm_75
.address_size 64
.const .align 4 .b8 table[8] = {1, 0, 0, 0, 2};
.visible .entry k(.param .u64 p, .param .u64 q, .param .u32 n)
{
	.reg .b32 %r<16>;
	.reg .b64 %l<16>;
	.reg .pred %p<8>;
	.local .align 4 .b8 stack[16];
	.shared .align 16 .b8 mem[1024];
	ld.param.u64 %l0, [p];
	ld.param.u64 %l1, [q];
	ld.param.u32 %r0, [n];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %l2, %r1, 4;
	add.s64 %l3, %l0, %l2;
	shl.b32 %r2, %r1, 2;
	mov.u32 %r10, mem;
	add.u32 %r11, %r10, %r2;
	and.b32 %r3, %r1, 1;
	setp.ne.u32 %p1, %r3, 0;
`

// Whatever a device would pass over or die of is reported with its line and
// thread. The kernels run in blocks of 64 threads; p has 64 words that are set, q
// 64 that are not.
func TestFaults(t *testing.T) {
	for _, c := range []struct {
		name, body string
		kind       Kind
		thread     uint32
		detail     string
	}{
		{"a read past the end", "ld.global.u32 %r4, [%l3+4];", OutOfBounds, 63, "0 bytes past the end of an allocation of 256 bytes"},
		{"a read before the beginning", "ld.global.u32 %r4, [%l3-8];", OutOfBounds, 0, "8 bytes before an allocation of 256 bytes"},
		{"a read across the end", "ld.global.u64 %l4, [%l0+252];", Misaligned, 0, "multiple of 8"},
		{"a vector across the end", "add.s64 %l3, %l3, %l2; ld.global.v2.u32 {%r4, %r5}, [%l3];", OutOfBounds, 32, "past the end"},
		{"a null pointer", "mov.u64 %l4, 8; ld.global.u32 %r4, [%l4];", OutOfBounds, 0, "null"},
		{"a misaligned read", "ld.global.u32 %r4, [%l0+2];", Misaligned, 0, "multiple of 4"},
		{"a misaligned vector", "ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%l0+8];", Misaligned, 0, "multiple of 16"},
		{"an uninitialised read", "ld.global.u32 %r4, [%l1+12];", Uninitialised, 0, "byte 12"},
		{"a read of half initialised memory", "st.global.u16 [%l1], %r4; ld.global.u32 %r4, [%l1];", Uninitialised, 0, "byte 0"},
		{"a write past the end", "st.global.u32 [%l3+4], %r1;", OutOfBounds, 63, "past the end"},
		{"a store to a constant", "mov.u64 %l4, table; st.global.u32 [%l4], %r1;", ReadOnly, 0, "table"},
		{"an atomic on nothing written", "atom.global.add.u32 %r4, [%l1], 1;", Uninitialised, 0, "byte 0"},
		{"shared memory past the end", "st.shared.u32 [%r11+896], %r1;", OutOfBounds, 32, "1024 bytes"},
		{"shared memory without its address", "st.shared.u32 [%r2], %r1;", OutOfBounds, 0, "begin at 0x400"},
		{"uninitialised shared memory", "ld.shared.u32 %r4, [%r11];", Uninitialised, 0, "shared memory at 0x0"},
		{"misaligned shared memory", "add.u32 %r4, %r10, %r1; st.shared.u32 [%r4], %r1;", Misaligned, 1, "multiple of 4"},
		{"local memory past the end", "st.local.u32 [%r2], %r1;", OutOfBounds, 4, "16 bytes of local memory"},
		{"uninitialised local memory", "ld.local.u32 %r4, [stack+4];", Uninitialised, 0, "local memory"},
		{"two warps write a word", "and.b32 %r4, %r2, 127; add.u32 %r4, %r4, %r10; st.shared.u32 [%r4], %r1;", Race, 32, "thread 0 wrote"},
		{"lanes of a warp write a word", "st.shared.u32 [mem], %r1;", Race, 1, "thread 0 wrote"},
		{"a read of another warp's word", "st.shared.u32 [%r11], %r1; xor.b32 %r4, %r11, 128; ld.shared.u32 %r5, [%r4];", Uninitialised, 0, "shared memory"},
		{"a write after a read without a barrier", "st.shared.u32 [%r11], %r1; bar.sync 0; xor.b32 %r4, %r11, 4; ld.shared.u32 %r5, [%r4]; st.shared.u32 [%r11], %r5;", Race, 0, "thread 1 read"},
		{"a read after a write without a barrier", "st.shared.u32 [%r11], %r1; bar.sync 0; st.shared.u32 [%r11], %r1; xor.b32 %r4, %r11, 128; ld.shared.u32 %r5, [%r4];", Race, 32, "thread 0 read"},
		{"a write of what a whole warp read", "st.shared.u32 [%r11], %r1; bar.sync 0; ld.shared.u32 %r5, [mem]; setp.eq.u32 %p2, %r1, 32; @%p2 st.shared.u32 [mem], %r1;", Race, 32, "read the word"},
		{"a barrier that half a warp reaches", "@%p1 bra L; bar.sync 0; ret; L: bar.sync 0;", Deadlock, 0, "wait elsewhere"},
		{"barriers with different numbers", "setp.lt.u32 %p2, %r1, 32; @%p2 bra L; bar.sync 1; bra M; L: bar.sync 2; M: ret;", Deadlock, 32, "barrier 1"},
		{"a barrier that one warp skips", "setp.lt.u32 %p2, %r1, 32; @%p2 bra L; bar.sync 0; L: ret;", Deadlock, 32, "have ended"},
		{"a shuffle that half a warp reaches", "@%p1 bra L; mov.u32 %r4, -1; shfl.sync.bfly.b32 %r5|%p3, %r1, 2, 31, %r4; ret; L: mov.u32 %r4, -1; shfl.sync.bfly.b32 %r5|%p3, %r1, 2, 31, %r4;", Deadlock, 0, "wait elsewhere"},
		{"a shuffle without its own lane", "mov.u32 %r4, 1; shfl.sync.bfly.b32 %r5|%p3, %r1, 2, 31, %r4;", Deadlock, 1, "own member mask"},
		{"a shuffle from a lane that is away", "@%p1 bra L; mov.u32 %r4, 0x55555555; shfl.sync.bfly.b32 %r5|%p3, %r1, 1, 31, %r4; L: ret;", Uninitialised, 0, "lane 1"},
		{"a loop without an end", "L: bra.uni L;", Runaway, 0, "does a loop not end"},
		{"a table that is too short", "T: .branchtargets A, B; brx.idx %r1, T; A: ret; B: ret;", OutOfBounds, 2, "table of 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := open(t, Config{Workers: 1, Steps: 10000}, head+c.body+"\n\tret;\n}\n")
			data := make([]uint32, 64)
			var p driver.Params
			p.Ptr(in(b, data)).Ptr(b.alloc(256)).Uint32(64)
			err := b.launch("k", driver.Launch{Grid: dims(1, 1, 1), Block: dims(64, 1, 1)}, &p)
			var f *Fault
			if !errors.As(err, &f) {
				t.Fatalf("the error is %v", err)
			}
			line := 1 + strings.Count(head, "\n")
			if f.Kind != c.kind || f.Thread != [3]uint32{c.thread} || !strings.Contains(f.Detail, c.detail) || f.Line != line || f.Kernel != "k" || f.Text == "" {
				t.Errorf("the fault is %v", err)
			}
			if !errors.Is(err, driver.ErrLost) {
				t.Errorf("%v is no ErrLost", err)
			}
			if _, err := b.dev.Alloc(1); !errors.Is(err, driver.ErrLost) {
				t.Errorf("after a fault the device still works: %v", err)
			}
			b.must(b.dev.Close())
			if c, err := New(Config{}).Open(0); err != nil || c == nil {
				t.Error(err)
			}
		})
	}
}

// What is right is not reported: the same accesses with a barrier, bytes of one
// word by several threads, exchanges within a warp, memory read again and again.
func TestNoFaults(t *testing.T) {
	for name, body := range map[string]string{
		"read after a barrier":         "st.shared.u32 [%r11], %r1; bar.sync 0; xor.b32 %r4, %r11, 128; ld.shared.u32 %r5, [%r4]; bar.sync 0; st.shared.u32 [%r11], %r5;",
		"all read one word":            "setp.eq.u32 %p2, %r1, 0; @%p2 st.shared.u32 [mem], %r1; bar.sync 0; ld.shared.u32 %r5, [mem]; ld.shared.u32 %r5, [mem];",
		"bytes of a word":              "add.u32 %r4, %r10, %r1; st.shared.u8 [%r4], %r1; bar.sync 0; ld.shared.u32 %r5, [mem];",
		"halves of a word":             "shl.b32 %r4, %r1, 1; add.u32 %r4, %r4, %r10; st.shared.u16 [%r4], %r1; bar.sync 0; ld.shared.u32 %r5, [mem];",
		"an exchange in a warp":        "mov.u32 %r6, -1; st.shared.u32 [%r11], %r1; bar.warp.sync %r6; xor.b32 %r4, %r11, 4; ld.shared.u32 %r5, [%r4]; bar.warp.sync %r6; st.shared.u32 [%r11], %r5;",
		"one's own word":               "st.shared.u32 [%r11], %r1; ld.shared.u32 %r5, [%r11]; st.shared.u32 [%r11], %r5;",
		"lanes that meet at a barrier": "@%p1 bra L; add.s32 %r4, %r1, 1; L: bar.sync 0;",
		"a block behind its end":       "@%p1 bra A; B: bar.sync 0; ret; A: add.s32 %r4, %r1, 1; bra.uni B;",
		"a shuffle of some lanes":      "@%p1 bra L; mov.u32 %r4, 0x55555555; shfl.sync.bfly.b32 %r5|%p3, %r1, 2, 31, %r4; L: ret;",
		"lanes that return early":      "@%p1 ret; bar.sync 0;",
		"generic addresses":            "cvta.to.global.u64 %l4, %l0; ld.u32 %r4, [%l4]; mov.u64 %l5, mem; cvta.shared.u64 %l6, %l5; st.u8 [%l6], 1; mov.u64 %l7, stack; cvta.local.u64 %l8, %l7; st.u32 [%l8+4], %r4; ld.local.u32 %r5, [stack+4]; ld.const.u32 %r6, [table+4];",
		"atomics on shared memory":     "setp.eq.u32 %p2, %r1, 0; @%p2 st.shared.u32 [mem], %r1; bar.sync 0; atom.shared.add.u32 %r4, [mem], 1; red.shared.max.s32 [mem], 3;",
		"a jump through a table":       "T: .branchtargets A, B; brx.idx %r3, T; A: add.s32 %r4, %r1, 1; B: bar.sync 0;",
		"a fence and a prefetch":       "membar.gl; fence.acq_rel.gpu; prefetch.global.L2 [%l0]; ld.global.nc.L1::no_allocate.u32 %r4, [%l0];",
	} {
		t.Run(name, func(t *testing.T) {
			if name == "generic addresses" {
				body = strings.Replace(body, "st.u8 [%l6], 1;", "setp.eq.u32 %p2, %r1, 0; @%p2 st.u8 [%l6], %r1;", 1)
			}
			b := open(t, Config{Workers: 1, Steps: 10000}, head+body+"\n\tret;\n}\n")
			var p driver.Params
			p.Ptr(in(b, make([]uint32, 64))).Ptr(b.alloc(256)).Uint32(64)
			for range 3 { // nothing of one block is seen by the next
				b.must(b.launch("k", driver.Launch{Grid: dims(5, 1, 1), Block: dims(64, 1, 1)}, &p))
			}
		})
	}
}

// The fault of the lowest block is reported, whatever worker finds one first.
func TestFaultsAreDeterministic(t *testing.T) {
	body := "mov.u32 %r4, %ctaid.x; setp.lt.u32 %p2, %r4, 17; @%p2 ret; mov.u64 %l4, 0; ld.global.u32 %r5, [%l4];"
	for range 20 {
		b := open(t, Config{Workers: 4}, head+body+"\n\tret;\n}\n")
		var p driver.Params
		p.Ptr(in(b, make([]uint32, 64))).Ptr(b.alloc(256)).Uint32(64)
		err := b.launch("k", driver.Launch{Grid: dims(64, 1, 1), Block: dims(64, 1, 1)}, &p)
		var f *Fault
		if !errors.As(err, &f) || f.Block != [3]uint32{17} {
			t.Fatalf("the error is %v", err)
		}
	}
}

func TestBadLaunches(t *testing.T) {
	b := open(t, Config{}, head+"ret;\n}\n")
	f, err := b.dev.Function(b.m, "k")
	b.must(err)
	one := dims(1, 1, 1)
	good := driver.Launch{Grid: one, Block: one}
	params := make([]byte, 20)
	b.must(b.dev.Launch(b.s, f, good, params))
	for name, c := range map[string]struct {
		l driver.Launch
		n int
	}{
		"parameters are missing":   {good, 16},
		"no blocks":                {driver.Launch{Block: one}, 20},
		"too many threads":         {driver.Launch{Grid: one, Block: dims(32, 33, 1)}, 20},
		"too much shared memory":   {driver.Launch{Grid: one, Block: one, Shared: 48 << 10}, 20},
		"negative shared memory":   {driver.Launch{Grid: one, Block: one, Shared: -1}, 20},
		"too many blocks in y":     {driver.Launch{Grid: dims(1, 65536, 1), Block: one}, 20},
		"a product that overflows": {driver.Launch{Grid: one, Block: dims(1<<16, 1<<16, 1)}, 20},
	} {
		err := b.dev.Launch(b.s, f, c.l, params[:c.n])
		var fault *Fault
		if !errors.As(err, &fault) || fault.Kind != BadLaunch || !errors.Is(err, driver.ErrKernel) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.must(b.dev.SetMaxShared(f, 60<<10))
	b.must(b.dev.Launch(b.s, f, driver.Launch{Grid: one, Block: one, Shared: 60 << 10}, params))
	if err := b.dev.SetMaxShared(f, 64<<10); !errors.Is(err, driver.ErrKernel) {
		t.Errorf("more shared memory than there is: %v", err)
	}
	if _, err := b.dev.Function(b.m, "nothing"); !errors.Is(err, driver.ErrKernel) || !strings.Contains(err.Error(), "[k]") {
		t.Errorf("a kernel that is not there: %v", err)
	}
	b.must(b.dev.Sync(b.s))
}

// A text that cannot be read, or must not be run, names the line.
func TestRefusedTexts(t *testing.T) {
	for name, c := range map[string]struct{ body, want string }{
		"approximate":            {"div.approx.f32 %r4, %r1, %r2;", "approx"},
		"flushing":               {"add.rn.ftz.f32 %r4, %r1, %r2;", "ftz"},
		"fusable product":        {"mul.f32 %r4, %r1, %r2;", "rounding is missing"},
		"fusable sum":            {"add.f32 %r4, %r1, %r2;", "rounding is missing"},
		"full division":          {"div.full.f32 %r4, %r1, %r2;", "full"},
		"no such instruction":    {"frobnicate.u32 %r4, %r1;", "not supported"},
		"no such modifier":       {"add.sat.s32 %r4, %r1, %r2;", "modifier .sat"},
		"no such register":       {"add.s32 %r4, %r1, %r99;", "%r99"},
		"no such label":          {"bra.uni NOWHERE;", "NOWHERE"},
		"wrong width":            {"add.s32 %r4, %l1, %r2;", "%l1"},
		"predicate as a number":  {"add.s32 %r4, %p1, %r2;", "%p1"},
		"number as a predicate":  {"@%r1 ret;", "%r1"},
		"constant too large":     {"add.s32 %r4, %r1, 4294967296;", "does not fit"},
		"float for an integer":   {"add.s32 %r4, %r1, 0f3F800000;", "float"},
		"integer for a float":    {"add.rn.f32 %r4, %r1, 1;", "integer"},
		"operand missing":        {"add.s32 %r4, %r1;", "operands"},
		"too many operands":      {"add.s32 %r4, %r1, %r2, %r3;", "operands"},
		"semicolon missing":      {"add.s32 %r4, %r1, %r2", "expected"},
		"strange character":      {"add.s32 %r4, %r1, #2;", "unexpected character"},
		"parameter out of range": {"ld.param.u32 %r4, [p+8];", "outside parameter"},
		"store to a parameter":   {"st.param.u32 [p], %r4;", "cannot be written"},
		"call":                   {"call.uni foo, (%r1);", "operand was expected"},
		"tensor core":            {"wmma.load.a.sync.aligned.row.m16n16k16.f16 {%r4}, [%l0];", "wmma"},
	} {
		text := head + c.body + "\nret;\n}\n"
		dev, err := New(Config{}).Open(0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = dev.LoadModule("test", []byte(text))
		var s *SyntaxError
		if !errors.As(err, &s) || !errors.Is(err, driver.ErrKernel) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if line := 1 + strings.Count(head, "\n"); s.Line != line && s.Line != line+1 {
			t.Errorf("%s: line %d, want %d: %v", name, s.Line, line, err)
		}
		free, total, err := dev.MemInfo()
		if err != nil || free != total {
			t.Errorf("%s: %d of %d bytes are free afterwards", name, free, total)
		}
	}
}

func TestCheck(t *testing.T) {
	if err := Check(sample(t)); err != nil {
		t.Errorf("the sample: %v", err)
	}
	for body, want := range map[string]string{
		"add.rz.f32 %r4, %r1, %r2;":                        "not marked .rn",
		"mul.f32 %r4, %r1, %r2;":                           "not marked .rn",
		"mad.f32 %r4, %r1, %r2, %r3;":                      "not marked .rn",
		"fma.rn.ftz.f32 %r4, %r1, %r2, %r3;":               "ftz",
		"sqrt.approx.f32 %r4, %r1;":                        "approx",
		"ex2.approx.f32 %r4, %r1;":                         "approx",
		"rsqrt.f32 %r4, %r1;":                              "no correctly rounded form",
		"red.global.add.f32 [%l0], %r1;":                   "no order",
		"add.f16 %r4, %r1, %r2;":                           "not marked .rn",
		"sub.rn.f32 %r4, %r1, %r2; div.f64 %l4, %l1, %l2;": "div.f64",
	} {
		if err := Check(head + body + "\nret;\n}\n"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", body, err)
		}
	}
	for was, now := range map[string]string{".version 7.0": ".version 9.0", ".target sm_75": ".target sm_90"} {
		if err := Check(strings.Replace(head+"ret;\n}\n", was, now, 1)); err == nil || !strings.Contains(err.Error(), "not") {
			t.Errorf("%s: %v", now, err)
		}
	}
}

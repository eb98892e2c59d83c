package emu

import (
	"math"
	"math/rand/v2"
	"testing"

	"samebit/backend/cuda/driver"
	"samebit/internal/canon"
)

// The kernels of testdata/sample.cu, as a compiler made them, against plain Go.

// sampleExp is the function ex of the sample.
func sampleExp(x float32) float32 {
	if x != x {
		return x
	}
	x = min(max(x, -104), 89)
	t := canon.FMA32(x, 1.442695, 12582912)
	n := t - 12582912
	ni := int32(math.Float32bits(t)) - 0x4b400000
	r := canon.FMA32(n, -0.693, x)
	q := canon.FMA32(r, 0.1, 1)
	n1 := ni >> 1
	n2 := ni - n1
	return float32(float32(q*math.Float32frombits(uint32(n1+127)<<23)) * math.Float32frombits(uint32(n2+127)<<23))
}

// tree adds 32 lanes in the order of a shuffle tree.
func tree(lane [32]float32) float32 {
	for h := 16; h > 0; h /= 2 {
		for i := range h {
			lane[i] += lane[i+h]
		}
	}
	return lane[0]
}

func TestCompiledSoftmax(t *testing.T) {
	b := open(t, Config{}, sample(t))
	r := rand.New(rand.NewPCG(3, 3))
	for _, k := range []int{1, 31, 32, 33, 100, 257} {
		rows := 5
		x := floats(r, rows*k)
		want := make([]float32, rows*k)
		for row := range rows {
			v := x[row*k:][:k]
			m := float32(math.Inf(-1))
			for _, e := range v {
				m = max(m, e)
			}
			var lane [32]float32
			for i, e := range v {
				lane[i%32] += sampleExp(e - m)
			}
			inv := 1 / tree(lane)
			for i, e := range v {
				want[row*k+i] = float32(float32(sampleExp(e-m)*inv) * float32(i&3+1))
			}
		}
		y := b.alloc(4 * rows * k)
		var p driver.Params
		p.Ptr(y).Ptr(in(b, x)).Int32(int32(k))
		b.must(b.launch("softmax", driver.Launch{Grid: dims(uint32(rows), 1, 1), Block: dims(32, 1, 1)}, &p))
		same(t, "softmax", out[float32](b, y, rows*k), want)
	}
	if c := b.dev.Counts()["softmax"]; c.Diverged == 0 || c.Launches != 6 || c.Threads[Sync] == 0 {
		t.Errorf("counts are %+v", c)
	}
}

func TestCompiledDivergence(t *testing.T) {
	b := open(t, Config{}, sample(t))
	r := rand.New(rand.NewPCG(4, 4))
	const n = 333
	x, want := make([]int32, n), make([]int32, n)
	table := [8]int32{1, 2, 3, 4, 5}
	for i := range x {
		x[i] = 1 + r.Int32N(5000)
		c, s := uint32(x[i]), int32(0)
		for c != 1 && s < 1000 {
			if c&1 != 0 {
				c = 3*c + 1
			} else {
				c /= 2
			}
			if s++; s == 77 {
				continue
			}
			if c%7 == 3 {
				s++
			}
		}
		want[i] = s + table[i&7]
	}
	y := b.alloc(4 * n)
	var p driver.Params
	p.Ptr(y).Ptr(in(b, x)).Int32(n)
	b.must(b.launch("diverge", driver.Launch{Grid: dims(3, 1, 1), Block: dims(128, 1, 1)}, &p))
	for i, got := range out[int32](b, y, n) {
		if got != want[i] {
			t.Fatalf("element %d is %d, want %d", i, got, want[i])
		}
	}
	if c := b.dev.Counts()["diverge"]; c.Diverged < 10 {
		t.Errorf("%d branches diverged", c.Diverged)
	}
}

// Doubles, bytes, dynamic shared memory, votes, atomics, a switch.
func TestCompiledMix(t *testing.T) {
	b := open(t, Config{}, sample(t))
	const n = 96
	r := rand.New(rand.NewPCG(5, 5))
	bytes := make([]byte, n)
	for i := range bytes {
		bytes[i] = byte(r.Uint32())
	}
	d, l := b.alloc(8*n), b.alloc(8*n)
	pb, u := in(b, bytes), in(b, make([]uint32, n+2))
	var p driver.Params
	p.Ptr(d).Ptr(pb).Ptr(l).Ptr(u).Int32(n)
	b.must(b.launch("misc", driver.Launch{Grid: dims(1, 1, 1), Block: dims(n, 1, 1), Shared: n}, &p))
	doubles, back, longs, words := out[float64](b, d, n), out[byte](b, pb, n), out[int64](b, l, n), out[uint32](b, u, n+2)
	for i := range n {
		rev := bytes[n-1-i]
		x := float64(math.Sqrt(float64(i))/3) + math.FMA(float64(i), 2, 1)
		x += float64(math.Float32frombits(uint32(rev) << 16))
		w := uint32(int32(math.RoundToEven(float64(float32(x))))) + uint32(float32(math.Sqrt(float64(float32(x)))))
		if doubles[i] != x || back[i] != rev || longs[i] != int64(i)*n%1000007 || words[i] != w {
			t.Fatalf("element %d: %v %v %v %v, want %v %v %v %v", i, doubles[i], back[i], longs[i], words[i], x, rev, int64(i)*n%1000007, w)
		}
	}
	// Every warp holds a lane above 5, so every thread adds one.
	if words[n] != n || words[n+1] != n-1 {
		t.Errorf("the atomics gave %d and %d", words[n], words[n+1])
	}
}

func TestShuffles(t *testing.T) {
	for _, c := range []struct {
		mode string
		b, c uint32
		from func(lane int) (int, bool)
	}{
		{"bfly", 5, 31, func(i int) (int, bool) { return i ^ 5, true }},
		{"down", 3, 31, func(i int) (int, bool) { return i + 3, i+3 < 32 }},
		{"up", 4, 0, func(i int) (int, bool) { return i - 4, i >= 4 }},
		{"idx", 9, 31, func(int) (int, bool) { return 9, true }},
		{"idx", 40, 31, func(int) (int, bool) { return 8, true }},
		{"down", 2, 0x1807, func(i int) (int, bool) { return i + 2, i%8+2 < 8 }},
		{"up", 1, 0x1800, func(i int) (int, bool) { return i - 1, i%8 >= 1 }},
		{"bfly", 4, 0x1807, func(i int) (int, bool) { return i ^ 4, true }},
		{"bfly", 8, 0x1807, func(i int) (int, bool) { return i ^ 8, i^8 < i }},
		{"idx", 3, 0x1807, func(i int) (int, bool) { return i&^7 | 3, true }},
	} {
		body := "mov.u32 %r4, -1; mul.lo.u32 %r5, %r1, 7; mov.u32 %r6, " + itoa(c.b) + "; mov.u32 %r7, " + itoa(c.c) + ";\n" +
			"shfl.sync." + c.mode + ".b32 %r8|%p3, %r5, %r6, %r7, %r4; selp.u32 %r9, 1000, 0, %p3; add.u32 %r8, %r8, %r9; st.global.u32 [%l3], %r8;"
		b := open(t, Config{}, head+body+"\nret;\n}\n")
		y := b.alloc(4 * 64)
		var p driver.Params
		p.Ptr(y).Ptr(y).Uint32(64)
		b.must(b.launch("k", driver.Launch{Grid: dims(1, 1, 1), Block: dims(64, 1, 1)}, &p))
		for i, got := range out[uint32](b, y, 64) {
			j, ok := c.from(i % 32)
			if !ok {
				j = i % 32
			}
			want := uint32(i/32*32+j) * 7
			if ok {
				want += 1000
			}
			if got != want {
				t.Errorf("%s %d %#x: lane %d got %d, want %d", c.mode, c.b, c.c, i, got, want)
			}
		}
	}
}

func itoa(v uint32) string {
	if v == 0 {
		return "0"
	}
	s := ""
	for ; v > 0; v /= 10 {
		s = string(rune('0'+v%10)) + s
	}
	return s
}

func TestVotesAndSpecials(t *testing.T) {
	body := `mov.u32 %r4, -1;
	setp.lt.u32 %p2, %r1, 40;
	vote.sync.ballot.b32 %r5, %p2, %r4;
	vote.sync.all.pred %p3, %p2, %r4;
	vote.sync.any.pred %p4, !%p2, %r4;
	vote.sync.uni.pred %p5, %p2, %r4;
	activemask.b32 %r6;
	selp.u32 %r7, 1, 0, %p3; selp.u32 %r8, 2, 0, %p4; selp.u32 %r9, 4, 0, %p5;
	or.b32 %r7, %r7, %r8; or.b32 %r7, %r7, %r9;
	mov.u32 %r10, %lanemask_lt; mov.u32 %r11, %warpid; mov.u32 %r12, %laneid; mov.u32 %r13, %lanemask_ge;
	mul.lo.u32 %r14, %r1, 32; cvt.u64.u32 %l4, %r14; add.s64 %l4, %l0, %l4;
	st.global.v4.u32 [%l4], {%r5, %r6, %r7, %r10};
	st.global.v4.u32 [%l4+16], {%r11, %r12, %r13, %r1};`
	b := open(t, Config{}, head+body+"\nret;\n}\n")
	y := b.alloc(32 * 64)
	var p driver.Params
	p.Ptr(y).Ptr(y).Uint32(64)
	b.must(b.launch("k", driver.Launch{Grid: dims(1, 1, 1), Block: dims(8, 4, 2)}, &p))
	got := out[uint32](b, y, 8*8)
	for i := range 8 { // %tid.x of the last threads that wrote: y = 3, z = 1
		thread := i + 8*7
		want := []uint32{0xffffffff, full, 1 | 4, 1<<(thread%32) - 1, 1, uint32(thread % 32), ^uint32(0) << (thread % 32), uint32(i)}
		for j := range want {
			if got[8*i+j] != want[j] {
				t.Errorf("thread %d, word %d is %#x, want %#x", i, j, got[8*i+j], want[j])
			}
		}
	}
}

func TestAtomics(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	const n = 200
	x := make([]uint32, n)
	for i := range x {
		x[i] = r.Uint32()
	}
	for _, c := range []struct {
		op   string
		init uint32
		step func(m, v uint32) uint32
	}{
		{"add.u32", 7, func(m, v uint32) uint32 { return m + v }},
		{"min.s32", 0x7fffffff, func(m, v uint32) uint32 { return uint32(min(int32(m), int32(v))) }},
		{"max.u32", 0, func(m, v uint32) uint32 { return max(m, v) }},
		{"and.b32", 0xffffffff, func(m, v uint32) uint32 { return m & v }},
		{"or.b32", 0, func(m, v uint32) uint32 { return m | v }},
		{"xor.b32", 5, func(m, v uint32) uint32 { return m ^ v }},
	} {
		for _, kind := range []string{"atom.global.", "atom.", "red.relaxed.gpu.global."} {
			dst := ""
			if kind[0] == 'a' {
				dst = "%r5, "
			}
			body := "mov.u32 %r4, %ctaid.x; shl.b32 %r4, %r4, 6; add.s32 %r4, %r4, %r1; setp.ge.u32 %p2, %r4, %r0; @%p2 ret; mul.wide.u32 %l4, %r4, 4; add.s64 %l4, %l1, %l4; ld.global.u32 %r6, [%l4];\n" +
				kind + c.op + " " + dst + "[%l0], %r6;"
			b := open(t, Config{Workers: 3}, head+body+"\nret;\n}\n")
			y := in(b, []uint32{c.init})
			var p driver.Params
			p.Ptr(y).Ptr(in(b, x)).Uint32(n)
			b.must(b.launch("k", driver.Launch{Grid: dims(4, 1, 1), Block: dims(64, 1, 1)}, &p))
			want := c.init
			for _, v := range x {
				want = c.step(want, v)
			}
			if got := out[uint32](b, y, 1)[0]; got != want {
				t.Errorf("%s%s gave %#x, want %#x", kind, c.op, got, want)
			}
		}
	}
	// What is returned: tickets are given once each.
	b := open(t, Config{Workers: 2}, head+"atom.global.inc.u32 %r4, [%l0], 1000; mul.wide.u32 %l4, %r4, 4; add.s64 %l4, %l1, %l4; atom.global.exch.b32 %r5, [%l4], 1; atom.global.cas.b32 %r6, [%l4], 1, 2; add.u32 %r7, %r5, %r6; mov.u64 %l5, 5; atom.global.add.u64 %l6, [%l1+800], %l5; st.global.u32 [%l4], %r7;\nret;\n}\n")
	y, q := in(b, []uint32{0}), in(b, make([]uint32, 202))
	var p driver.Params
	p.Ptr(y).Ptr(q).Uint32(0)
	b.must(b.launch("k", driver.Launch{Grid: dims(4, 1, 1), Block: dims(50, 1, 1)}, &p))
	got := out[uint32](b, q, 202)
	for i, v := range got[:200] {
		if v != 1 {
			t.Fatalf("ticket %d was given %d times", i, v)
		}
	}
	if got[200] != 1000 || got[201] != 0 {
		t.Errorf("the 64-bit sum is %d", got[200])
	}
}

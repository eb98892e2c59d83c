package emu

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"samebit/backend/cuda/driver"
	"samebit/internal/canon"
)

// product is D = A·B + C of one warp: A [16, 16] and B [8, 16], both bfloat16,
// C and D [16, 8] float32. BAR and GUARD are replaced by tests.
const product = `.version 7.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d)
{
	.reg .b32 %r<40>;
	.reg .f32 %f<16>;
	.reg .b64 %l<16>;
	.reg .pred %p<4>;
	.shared .align 16 .b8 mem[1024];
	ld.param.u64 %l0, [a];
	ld.param.u64 %l1, [b];
	ld.param.u64 %l2, [c];
	ld.param.u64 %l3, [d];
	mov.u32 %r0, %tid.x;
	shl.b32 %r1, %r0, 4;
	mov.u32 %r30, mem;
	add.u32 %r1, %r1, %r30;
	and.b32 %r2, %r0, 15;
	shr.u32 %r3, %r0, 4;
	shl.b32 %r4, %r2, 5;
	shl.b32 %r5, %r3, 4;
	add.u32 %r4, %r4, %r5;
	cvt.u64.u32 %l4, %r4;
	add.s64 %l4, %l0, %l4;
	ld.global.v4.u32 {%r6, %r7, %r8, %r9}, [%l4];
	st.shared.v4.u32 [%r1], {%r6, %r7, %r8, %r9};
	setp.ge.u32 %p0, %r0, 16;
	@%p0 bra NEXT;
	and.b32 %r2, %r0, 7;
	shr.u32 %r3, %r0, 3;
	shl.b32 %r4, %r2, 5;
	shl.b32 %r5, %r3, 4;
	add.u32 %r4, %r4, %r5;
	cvt.u64.u32 %l4, %r4;
	add.s64 %l4, %l1, %l4;
	ld.global.v4.u32 {%r6, %r7, %r8, %r9}, [%l4];
	st.shared.v4.u32 [%r1+512], {%r6, %r7, %r8, %r9};
NEXT:
	BAR
	ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r1];
	and.b32 %r2, %r1, 255;
	add.u32 %r2, %r2, %r30;
	ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r14, %r15, %r16, %r17}, [%r2+512];
	shr.u32 %r20, %r0, 2;
	and.b32 %r21, %r0, 3;
	shl.b32 %r20, %r20, 5;
	shl.b32 %r21, %r21, 3;
	add.u32 %r20, %r20, %r21;
	cvt.u64.u32 %l5, %r20;
	add.s64 %l6, %l2, %l5;
	add.s64 %l7, %l3, %l5;
	ld.global.v2.f32 {%f0, %f1}, [%l6];
	ld.global.v2.f32 {%f2, %f3}, [%l6+256];
	GUARD mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f0, %f1, %f2, %f3}, {%r10, %r11, %r12, %r13}, {%r14, %r15}, {%f0, %f1, %f2, %f3};
	st.global.v2.f32 [%l7], {%f0, %f1};
	st.global.v2.f32 [%l7+256], {%f2, %f3};
	ret;
}
`

func productText(bar, guard string) string {
	return strings.NewReplacer("BAR", bar, "GUARD", guard).Replace(product)
}

// run multiplies on an emulator.
func runProduct(t *testing.T, cfg Config, text string, x, y []uint16, c []float32) ([]float32, error) {
	t.Helper()
	cfg.Capability = 80
	b := open(t, cfg, text)
	d := b.alloc(4 * len(c))
	var p driver.Params
	p.Ptr(in(b, x)).Ptr(in(b, y)).Ptr(in(b, c)).Ptr(d)
	if err := b.launch("k", driver.Launch{Grid: dims(1, 1, 1), Block: dims(32, 1, 1)}, &p); err != nil {
		return nil, err
	}
	return out[float32](b, d, len(c)), nil
}

func bf16(v float32) uint16 { return uint16(math.Float32bits(v) >> 16) }

func TestMma(t *testing.T) {
	r := rand.New(rand.NewPCG(80, 16816))
	x, y, c := make([]uint16, 16*16), make([]uint16, 8*16), make([]float32, 16*8)
	value := func(u uint16) float32 { return f32(uint32(u) << 16) }
	for i := range x {
		x[i] = bf16(float32(r.NormFloat64() * math.Pow(2, float64(r.IntN(9)-4))))
	}
	for i := range y {
		y[i] = bf16(float32(r.NormFloat64()))
	}
	for i := range c {
		c[i] = float32(r.NormFloat64())
	}
	results := map[Sums][]float32{}
	for _, s := range []Sums{SumsRising, SumsFalling, SumsCut, SumsCutBy4} {
		got, err := runProduct(t, Config{Sums: s}, productText("bar.sync 0;", ""), x, y, c)
		if err != nil {
			t.Fatal(err)
		}
		results[s] = got
		for i := range 16 {
			for j := range 8 {
				want, exact, size := c[8*i+j], float64(c[8*i+j]), math.Abs(float64(c[8*i+j]))
				for k := range 16 {
					a, b := value(x[16*i+k]), value(y[16*j+k])
					want = canon.FMA32(a, b, want)
					exact += float64(a) * float64(b)
					size += math.Abs(float64(a) * float64(b))
				}
				// Every way adds 17 terms with at most 20 roundings or cuts, each at
				// most 2^-23 of the largest partial sum or term, which is at most size.
				if e := math.Abs(float64(got[8*i+j]) - exact); e > 20*0x1p-23*size {
					t.Errorf("sums %d, row %d, column %d: %v, exactly %v", s, i, j, got[8*i+j], exact)
				}
				if s == SumsRising && got[8*i+j] != want {
					t.Errorf("row %d, column %d: %v, in rising order %v", i, j, got[8*i+j], want)
				}
			}
		}
		for o, other := range results {
			if o == s {
				continue
			}
			differ := false
			for i := range got {
				differ = differ || got[i] != other[i]
			}
			if !differ {
				t.Errorf("sums %d and %d agree everywhere: no test sees the order", s, o)
			}
		}
	}
}

func TestSums(t *testing.T) {
	var ones, small, more [16]float32
	for k := range ones {
		ones[k], small[k], more[k] = 1, 0x1p-24, 0x1.8p-24
	}
	inf := ones
	inf[3] = float32(math.Inf(1))
	for _, x := range []struct {
		name string
		b    *[16]float32
		c    float32
		want [4]float32 // rising, falling, cut, cut by 4
	}{
		{"halves of the last bit", &small, 1, [4]float32{1, 1 + 0x1p-20, 1, 1}},
		{"three quarters of the last bit", &more, 1, [4]float32{1 + 0x1p-19, 1 + 0x1.8p-20, 1, 1}},
		{"negative", &small, -1, [4]float32{-1 + 0x1p-20, -1 + 0x1p-20, -1, -1}},
		{"whole numbers", &ones, 3, [4]float32{19, 19, 19, 19}},
		{"zero", new([16]float32), 0, [4]float32{}},
		{"infinity", &inf, 1, [4]float32{inf[3], inf[3], inf[3], inf[3]}},
	} {
		for s, want := range x.want {
			if got := Sums(s).dot(&ones, x.b, x.c); got != want {
				t.Errorf("%s, sums %d: %v, want %v", x.name, s, got, want)
			}
		}
	}
}

func TestRoundingToBF16(t *testing.T) {
	for f, want := range map[float32]uint32{
		1: 0x3f80, 1 + 0x1p-8: 0x3f80, 1 + 0x1.8p-8: 0x3f81, 1 + 0x1.8p-7: 0x3f82, -1 - 0x1p-7 - 0x1p-8: 0xbf82,
		0x1p-133: 1, 0x1p-134: 0, 0x1.8p-134: 1, math.MaxFloat32: 0x7f80, float32(math.Inf(-1)): 0xff80,
	} {
		if got := toBF16(math.Float32bits(f)); got != want {
			t.Errorf("%x is %04x, want %04x", f, got, want)
		}
	}
	if got := toBF16(0xffc00001); got != 0x7fff {
		t.Errorf("NaN is %04x", got)
	}
	// The pair of an instruction: the first operand lies above.
	b := open(t, Config{Capability: 80}, strings.Replace(strings.Replace(add1, "sm_75", "sm_80", 1), "add.u32 %r2, %r2, 1;", "mov.b32 %r3, 0f40000000; cvt.rn.bf16x2.f32 %r2, %r3, %r2;", 1))
	p := in(b, []float32{1 + 0x1.8p-8})
	var v driver.Params
	b.must(b.launch("add1", driver.Launch{Grid: dims(1, 1, 1), Block: dims(32, 1, 1)}, v.Ptr(p).Int32(1)))
	if got := out[uint32](b, p, 1)[0]; got != 0x40003f81 {
		t.Errorf("the pair is %08x", got)
	}
}

// The transposed form gives each lane two rows of a column.
func TestLdmatrixTransposed(t *testing.T) {
	text := strings.Replace(productText("bar.sync 0;", ""), ldmatrix4+" {%r10", ldmatrix4T+" {%r10", 1)
	text = strings.Replace(text, "{%f0, %f1}, [%l6];\n", "{%f0, %f1}, [%l6];\n\tst.global.v2.u32 [%l7], {%r10, %r11};\n\tst.global.v2.u32 [%l7+256], {%r12, %r13};\n\tret;\n", 1)
	x := make([]uint16, 16*16)
	for i := range x {
		x[i] = uint16(i)
	}
	got, err := runProduct(t, Config{}, text, x, make([]uint16, 8*16), make([]float32, 16*8))
	if err != nil {
		t.Fatal(err)
	}
	for l := range 32 {
		for m := range 4 {
			// Matrix m has rows from 8(m mod 2), columns from 8⌊m/2⌋.
			row, col := m%2*8+l%4*2, m/2*8+l/4
			want := uint32(16*row+col) | uint32(16*(row+1)+col)<<16
			if w := math.Float32bits(got[64*(m/2)+2*l+m%2]); w != want {
				t.Fatalf("lane %d, matrix %d: %08x, want %08x", l, m, w, want)
			}
		}
	}
}

func TestMatrixFaults(t *testing.T) {
	x, y, c := make([]uint16, 16*16), make([]uint16, 8*16), make([]float32, 16*8)
	for _, f := range []struct {
		name, bar, guard string
		kind             Kind
		detail           string
	}{
		{"no barrier", "", "", Race, "since the last barrier"},
		{"nothing stored", "bar.sync 0; add.u32 %r1, %r1, 512;", "", Uninitialised, "shared memory"},
		{"past the end", "bar.sync 0; add.u32 %r1, %r1, 1024;", "", OutOfBounds, "1024 bytes"},
		{"misaligned", "bar.sync 0; add.u32 %r1, %r1, 8;", "", Misaligned, "multiple of 16"},
		{"lanes left out", "bar.sync 0;", "@%p0", Deadlock, "never come"},
		{"lanes gone", "bar.sync 0; @%p0 ret;", "", Deadlock, "never come"},
	} {
		_, err := runProduct(t, Config{}, productText(f.bar, f.guard), x, y, c)
		var fault *Fault
		if !errors.As(err, &fault) || fault.Kind != f.kind || !strings.Contains(fault.Detail, f.detail) {
			t.Errorf("%s: %v", f.name, err)
		}
	}
}

// Tensor cores belong to the fast mode: no other text may name them.
func TestCheckFast(t *testing.T) {
	text := productText("bar.sync 0;", "")
	if err := CheckFast(text); err != nil {
		t.Errorf("a product on tensor cores: %v", err)
	}
	old := strings.Replace(text, "sm_80", "sm_75", 1)
	for name, x := range map[string]struct {
		check      func(string) error
		text, want string
	}{
		"the exact rule":         {Check, old, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32: tensor cores promise no order"},
		"its target":             {Check, text, ".target sm_80, not sm_75"},
		"loads":                  {Check, old, "ldmatrix.sync.aligned.m8n8.x4.shared.b16: tensor cores"},
		"the fast rule's target": {CheckFast, old, ".target sm_75, not sm_80"},
		"other sums in it":       {CheckFast, strings.Replace(text, "ret;", "add.f32 %f0, %f1, %f2; ret;", 1), "not marked .rn"},
		"approximations in it":   {CheckFast, strings.Replace(text, "ret;", "ex2.approx.f32 %f0, %f1; ret;", 1), "approx"},
	} {
		if err := x.check(x.text); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	load := func(capability int, text string) error {
		c, err := New(Config{Capability: capability}).Open(0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.LoadModule("k", []byte(text))
		return err
	}
	for name, x := range map[string]struct {
		capability int
		text, want string
	}{
		"a module for newer devices":  {75, text, ".target sm_80: the device has compute capability 7.5"},
		"an instruction of newer":     {80, old, "needs .target sm_80"},
		"no target":                   {80, strings.Replace(text, "sm_80", "some", 1), ".target some"},
		"another product":             {80, strings.Replace(text, "m16n8k16", "m16n8k8", 1), "only mma.sync"},
		"another load":                {80, strings.Replace(text, "x4", "x2", 1), "only ldmatrix"},
		"vectors that are too short":  {80, strings.Replace(text, "{%r14, %r15}, {%f0", "{%r14}, {%f0", 1), "a vector of 2 registers"},
		"a load of too few registers": {80, strings.Replace(text, "{%r10, %r11, %r12, %r13}, [%r1]", "{%r10, %r11}, [%r1]", 1), "a vector of 4 registers"},
	} {
		if err := load(x.capability, x.text); err == nil || !errors.Is(err, driver.ErrKernel) || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

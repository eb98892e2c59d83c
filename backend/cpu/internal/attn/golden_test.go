package attn

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"
)

const goldens = "../../../../testdata/numerics"

type goldenIndex struct {
	Arrays []struct {
		File   string
		Shape  []int
		Offset int
	}
	Cases []struct {
		Op      string
		Params  json.RawMessage
		In, Out map[string]int
	}
}

func (x *goldenIndex) array(t *testing.T, files map[string][]byte, i int) []float32 {
	a := x.Arrays[i]
	data, ok := files[a.File]
	if !ok {
		var err error
		if data, err = os.ReadFile(filepath.Join(goldens, a.File)); err != nil {
			t.Fatal(err)
		}
		files[a.File] = data
	}
	n := 1
	for _, s := range a.Shape {
		n *= s
	}
	f := make([]float32, n)
	for j := range f {
		f[j] = math.Float32frombits(binary.LittleEndian.Uint32(data[a.Offset+4*j:]))
	}
	return f
}

func TestGoldens(t *testing.T) {
	var x goldenIndex
	data, err := os.ReadFile(filepath.Join(goldens, "index.json"))
	if err == nil {
		err = json.Unmarshal(data, &x)
	}
	if err != nil {
		t.Fatal(err)
	}
	eachSet(t, func(t *testing.T, kern *Kernels) {
		files := map[string][]byte{}
		seen := 0
		for i, c := range x.Cases {
			if c.Op != "attention" {
				continue
			}
			seen++
			var p struct{ D, Group, NQ, Past, Window int }
			if err := json.Unmarshal(c.Params, &p); err != nil {
				t.Fatal(err)
			}
			in := func(name string) []float32 { return x.array(t, files, c.In[name]) }
			out := func(name string) []float32 { return x.array(t, files, c.Out[name]) }
			k, v := in("k"), in("v")
			n := p.Past + p.NQ
			pages := newCache(n, p.D)
			for j := range n {
				pages.set(j, k[j*p.D:(j+1)*p.D], v[j*p.D:(j+1)*p.D])
			}
			rows := p.NQ * p.Group
			got, check := guarded(t, rows*p.D)
			j := &Job{Q: in("q"), QStride: p.D, Out: got, OutStride: p.D, Rows: rows, D: p.D, K: pages.k, V: pages.v, Scale: in("scale")[0]}
			for r := range rows {
				pos := p.Past + r/p.Group
				lo := 0
				if p.Window > 0 {
					lo = max(0, pos-p.Window+1)
				}
				j.Lo, j.Hi = append(j.Lo, int32(lo)), append(j.Hi, int32(pos+1))
			}
			sc := scratch(rows, p.D)
			kern.Attend(j, sc)
			check()
			if s := diff(got, out("o")); s != "" {
				t.Errorf("case %d %+v: out%s", i, p, s)
			}
			m, l, o := make([]float32, rows), make([]float32, rows), make([]float32, rows*p.D)
			b0 := int(j.Lo[rows-1]) / 64
			lm, ll, lo := out("last_row_m"), out("last_row_l"), out("last_row_o")
			for b := range lm {
				kern.Partials(j, b0+b, m, l, o, sc)
				if s := diff(m[rows-1:], lm[b:b+1]); s != "" {
					t.Errorf("case %d %+v block %d: m%s", i, p, b, s)
				}
				if s := diff(l[rows-1:], ll[b:b+1]); s != "" {
					t.Errorf("case %d %+v block %d: l%s", i, p, b, s)
				}
				if s := diff(o[(rows-1)*p.D:], lo[b*p.D:(b+1)*p.D]); s != "" {
					t.Errorf("case %d %+v block %d: o%s", i, p, b, s)
				}
			}
		}
		if seen == 0 {
			t.Fatal("no attention case in the goldens")
		}
	})
}

// gen is the exact generator of the worked examples, numerics.md 14.
func gen(a, i int) float32 { return float32((i*7919+a*104729+13)%2048-1024) / 512 }

func bits(u ...uint32) []float32 {
	f := make([]float32, len(u))
	for i, x := range u {
		f[i] = math.Float32frombits(x)
	}
	return f
}

func TestWorkedExamples(t *testing.T) {
	const d = 8
	q := make([]float32, d)
	pages := newCache(70, d)
	for c := range q {
		q[c] = gen(4, c)
	}
	for j := range 70 {
		k, v := make([]float32, d), make([]float32, d)
		for c := range d {
			k[c], v[c] = gen(5, 8*j+c), gen(6, 8*j+c)
		}
		pages.set(j, k, v)
	}
	tests := []struct {
		lo, hi int32
		want   []float32
	}{
		{0, 1, bits(0x3fa8c000, 0x3f490000, 0x3e810000, 0xbe900000, 0xbf508000, 0xbfac8000, 0xbff0c000, 0x3fcb0000)},
		{0, 64, bits(0x3f6870a6, 0x3ecfbfeb, 0xbdec8315, 0xbf223ca9, 0xbf90488d, 0xbfb47806, 0x3fb504f5, 0x3f936aa2)},
		{0, 70, bits(0x3f6636a8, 0x3ecb1fc8, 0xbdfc76a6, 0xbf23575a, 0xbf8fa747, 0xbfb08073, 0x3fb450db, 0x3f925622)},
		{60, 70, bits(0x3f6daf77, 0x3eca5eef, 0xbe05cdd9, 0xbf2505b1, 0xbf90364f, 0xbfaf780a, 0x3fc875a2, 0x3f9917bb)},
	}
	scale := math.Float32frombits(0x3eb504f3)
	eachSet(t, func(t *testing.T, kern *Kernels) {
		for _, tt := range tests {
			got, check := guarded(t, d)
			j := &Job{Q: q, Out: got, Rows: 1, D: d, Lo: []int32{tt.lo}, Hi: []int32{tt.hi}, K: pages.k, V: pages.v, Scale: scale}
			kern.Attend(j, scratch(1, d))
			check()
			if s := diff(got, tt.want); s != "" {
				t.Errorf("visible [%d,%d): out%s", tt.lo, tt.hi, s)
			}
		}
		j := &Job{Q: q, Rows: 1, D: d, Lo: []int32{0}, Hi: []int32{70}, K: pages.k, V: pages.v, Scale: scale}
		wants := [][]float32{
			bits(0x40647b57, 0x41327470, 0x4122080c, 0x4090d1ef, 0xbfa4deb7, 0xc0e22fef, 0xc1492823, 0xc17b9b13, 0x417c5f8f, 0x414d8662),
			bits(0x3f878741, 0x3fc14238, 0x3e268fa1, 0xbf2473b6, 0xbfa0d0b4, 0xbfc72d6e, 0xbf825467, 0x400b4fe5, 0x3faf93fb, 0x3f111057),
		}
		for b, want := range wants {
			got := make([]float32, 2+d)
			kern.Partials(j, b, got[:1], got[1:2], got[2:], scratch(1, d))
			if s := diff(got, want); s != "" {
				t.Errorf("block %d: (m, l, o)%s", b, s)
			}
		}
	})
}

package attn

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"samebit/backend/cpu/internal/isa"
)

// benchJob is rows queries of a group of heads at the end of that many keys.
func benchJob(queries, group, keys, d int) *Job {
	rng := rand.New(rand.NewPCG(1, 2))
	rows := queries * group
	j := &Job{QStride: group * d, OutStride: group * d, Group: group, Rows: rows, D: d, Scale: 1 / float32(math.Sqrt(float64(d)))}
	j.Q, j.Out = make([]float32, rows*d), make([]float32, rows*d)
	fill(rng, j.Q, 1)
	pages := (keys + Page - 1) / Page
	mem := make([]float32, 2*pages*Page*d)
	fill(rng, mem, 1)
	for b := range pages {
		j.K = append(j.K, mem[2*b*Page*d:][:Page*d])
		j.V = append(j.V, mem[(2*b+1)*Page*d:][:Page*d])
	}
	for r := range rows {
		j.Lo, j.Hi = append(j.Lo, 0), append(j.Hi, int32(keys-queries+r/group+1))
	}
	return j
}

// checkOnce compares one row with the contract before timing.
func checkOnce(b *testing.B, j *Job) {
	b.Helper()
	c := &cache{d: j.D, k: j.K, v: j.V}
	r := j.Rows - 1
	lo := max(0, int(j.Hi[r])-200) // a short window keeps the check cheap
	one := *j
	one.Group, one.Rows, one.Q, one.Out = 1, 1, j.Q[j.place(r, j.QStride):], make([]float32, j.D)
	one.Lo, one.Hi = []int32{int32(lo)}, j.Hi[r:r+1]
	For(isa.Best()).Attend(&one, scratch(1, j.D))
	want, _, _, _, _ := refRow(one.Q[:j.D], c.key, c.value, slots(lo, int(j.Hi[r])), j.Scale)
	if e := diff(one.Out, want); e != "" {
		b.Fatal("wrong result: out" + e)
	}
}

func fast(b *testing.B, f func(b *testing.B, k *Kernels)) {
	for _, s := range isa.Available()[1:] {
		b.Run(s.String(), func(b *testing.B) { f(b, For(s)) })
	}
}

// BenchmarkPrefill reports products of visible keys only.
func BenchmarkPrefill(b *testing.B) {
	for _, d := range []int{64, 128, 256} {
		b.Run(fmt.Sprintf("queries=512/keys=4096/d=%d", d), func(b *testing.B) {
			j := benchJob(512, 1, 4096, d)
			checkOnce(b, j)
			fast(b, func(b *testing.B, k *Kernels) { benchFlops(b, k, j) })
		})
	}
	b.Run("queries=64/keys=64/d=64", func(b *testing.B) {
		j := benchJob(64, 2, 64, 64)
		checkOnce(b, j)
		fast(b, func(b *testing.B, k *Kernels) { benchFlops(b, k, j) })
	})
}

func benchFlops(b *testing.B, k *Kernels, j *Job) {
	sc := scratch(j.Rows, j.D)
	var keys float64
	for r := range j.Rows {
		keys += float64(j.Hi[r] - j.Lo[r])
	}
	b.ReportAllocs()
	best := time.Hour // the fastest call says most on a shared machine
	for b.Loop() {
		t := time.Now()
		k.Attend(j, sc)
		best = min(best, time.Since(t))
	}
	flops := 4 * keys * float64(j.D)
	b.ReportMetric(flops*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
	b.ReportMetric(flops/best.Seconds()/1e9, "best-GFLOP/s")
}

// BenchmarkDecode reports the bytes of K and V per second and the keys, for pages of
// float32 and of bf16, beside a plain read
// of the same pages. They take far more than the caches and each step reads
// other ones; scattered pages follow each other in random order.
func BenchmarkDecode(b *testing.B) {
	const keys = 32 << 10
	for _, d := range []int{64, 128} {
		heads := 256 / d * 4 // 256 MiB
		for _, order := range []string{"adjacent", "scattered"} {
			j := benchJob(1, 8, keys*heads, d)
			if order == "scattered" {
				rand.New(rand.NewPCG(1, 3)).Shuffle(len(j.K), func(x, y int) {
					j.K[x], j.K[y] = j.K[y], j.K[x]
					j.V[x], j.V[y] = j.V[y], j.V[x]
				})
			}
			for r := range j.Hi {
				j.Hi[r] = keys
			}
			half := *j
			(&cache{d: d, k: j.K, v: j.V}).half(&half)
			checkOnce(b, j)
			step := func(b *testing.B, j *Job, group int, f func(one *Job)) {
				bytes := keys * int64(d) * 8
				if j.K16 != nil {
					bytes /= 2
				}
				b.SetBytes(bytes)
				b.ReportAllocs()
				one, h, best := *j, 0, time.Hour
				one.Group, one.Rows = group, group
				for b.Loop() {
					p := h % heads * keys / Page
					if j.K16 != nil {
						one.K16, one.V16 = j.K16[p:p+keys/Page], j.V16[p:p+keys/Page]
					} else {
						one.K, one.V = j.K[p:p+keys/Page], j.V[p:p+keys/Page]
					}
					t := time.Now()
					f(&one)
					best = min(best, time.Since(t))
					h++
				}
				b.ReportMetric(float64(bytes)/best.Seconds()/1e9, "best-GB/s")
				b.ReportMetric(keys/best.Seconds()/1e6, "best-Mkeys/s")
			}
			name := fmt.Sprintf("keys=%d/d=%d/%s", keys, d, order)
			b.Run(name+"/read", func(b *testing.B) {
				step(b, j, 1, func(one *Job) {
					for i := range one.K {
						bytes.Count(asBytes(one.K[i]), []byte{255})
						bytes.Count(asBytes(one.V[i]), []byte{255})
					}
				})
			})
			for _, group := range []int{1, 2, 4, 8} {
				for _, pages := range []struct {
					name string
					job  *Job
				}{{"f32", j}, {"bf16", &half}} {
					b.Run(fmt.Sprintf("%s/group=%d/%s", name, group, pages.name), func(b *testing.B) {
						fast(b, func(b *testing.B, k *Kernels) {
							sc := scratch(group, d)
							step(b, pages.job, group, func(one *Job) { k.Attend(one, sc) })
						})
					})
				}
			}
		}
	}
}

func asBytes(x []float32) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), 4*len(x)) }

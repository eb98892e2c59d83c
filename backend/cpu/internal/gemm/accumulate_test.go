package gemm

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"samebit/backend/cpu/internal/isa"
	"samebit/internal/canon"
)

// A sum has the bits of its chains, however its rows and columns are cut, and leaves
// what is beside C alone.
func TestAccumulate(t *testing.T) {
	for _, set := range isa.Available() {
		t.Run(set.String(), func(t *testing.T) {
			ks := For(set)
			for seed := range uint64(40) {
				r := rand.New(rand.NewPCG(seed, 5))
				m, n, k := 1+r.IntN(140), 1+r.IntN(100), 1+r.IntN(300)
				s := Sum{LDC: n + r.IntN(9), M: m, N: n, K: k, Trans: r.IntN(2) == 0, Fresh: r.IntN(2) == 0}
				for at := 0; at < k; {
					at = min(k, at+1+r.IntN(kb))
					s.Cuts = append(s.Cuts, at)
				}
				rows, cols := m, k
				if s.Trans {
					rows, cols = k, m
				}
				s.LDA = cols + r.IntN(9)
				s.A = random(r, (rows-1)*s.LDA+cols)
				w := random(r, k*n)
				s.Panels = make([]float32, (n+width-1)/width*width*k)
				for i, half := 0, r.IntN(k+1); i < 2; i++ {
					ks.PackInputs(s.Panels, w, n, n, k, i*half, []int{half, k}[i])
				}
				s.C = random(r, (m-1)*s.LDC+n)
				for i := range s.C {
					s.C[i] += 0 // gradients are never -0
				}
				want := slices.Clone(s.C)
				for i := range m {
					for j := range n {
						total := want[i*s.LDC+j]
						if s.Fresh {
							total = 0
						}
						x := 0
						for _, end := range s.Cuts {
							var acc float32
							for ; x < end; x++ {
								at := i*s.LDA + x
								if s.Trans {
									at = x*s.LDA + i
								}
								acc = canon.FMA32(s.A[at], w[x*n+j], acc)
							}
							total += acc
						}
						want[i*s.LDC+j] = total
					}
				}
				tiles, panels := ks.Tiles(m), (n+width-1)/width
				tc, pc := 1+r.IntN(tiles), 1+r.IntN(panels)
				scratch := make([]float32, ks.SumScratch())
				for i := range tc {
					for j := range pc {
						for at := range scratch {
							scratch[at] = float32(math.NaN())
						}
						ks.Accumulate(&s, i*tiles/tc, (i+1)*tiles/tc, j*panels/pc, (j+1)*panels/pc, scratch)
					}
				}
				for i, v := range s.C {
					if math.Float32bits(v) != math.Float32bits(want[i]) && !(v != v && want[i] != want[i]) {
						t.Fatalf("seed %d: %d x %d of %d inputs (%v), trans %v, fresh %v: C[%d] = %x, want %x", seed, m, n, k, s.Cuts, s.Trans, s.Fresh, i, v, want[i])
					}
				}
			}
		})
	}
}

// A tile that is packed from the side leaves what lies behind it alone, however few
// rows it has.
func TestPackTransTileStaysInside(t *testing.T) {
	for _, set := range isa.Available() {
		ks := For(set)
		for rows := 1; rows <= ks.mr; rows++ {
			for k := 1; k < 6; k++ {
				r := rand.New(rand.NewPCG(uint64(rows), uint64(k)))
				a, dst := random(r, k*rows), random(r, k*rows+16)
				behind := slices.Clone(dst[k*rows:])
				ks.packTransTile(dst, a, rows, rows, k)
				if !slices.Equal(dst[:k*rows], a) || !slices.Equal(dst[k*rows:], behind) {
					t.Errorf("%s: a tile of %d rows and %d inputs: %v of %v, behind it %v instead of %v", set, rows, k, dst[:k*rows], a, dst[k*rows:], behind)
				}
			}
		}
	}
}

package cuda

import (
	"fmt"

	"samebit/backend"
	"samebit/backend/cuda/driver"
	"samebit/tensor"
)

// inexact is why results of the fast mode are not those of docs/numerics.md.
const inexact = "products and attention of many rows in bfloat16 on tensor cores"

// fastMark ends the name of a device in fast mode.
const fastMark = ",fast"

// fastNames are the kernels of the fast mode for a storage type.
type fastNames struct{ module, small, large string }

var fastKernels = func() map[tensor.DType]fastNames {
	m := map[tensor.DType]fastNames{}
	for dt, f := range formats {
		m[dt] = fastNames{"fast_" + f.name, "fastSmall_" + f.name, "fastLarge_" + f.name}
	}
	return m
}()

// canBeFast refuses devices without tensor cores for bfloat16.
func canBeFast(info driver.Info) error {
	if info.Major >= 8 {
		return nil
	}
	return fmt.Errorf("the fast mode needs compute capability 8.0 or newer, %s has %d.%d (leave fast out): %w", info.Name, info.Major, info.Minor, backend.ErrUnsupported)
}

// fast is a product of many rows on tensor cores. Large tiles are taken where there
// are enough of them; operands may lie anywhere.
func (s *stream) fast(m *weight, rows int) {
	names := fastKernels[m.dt]
	grid := func(bn, bm int) [3]uint32 {
		return [3]uint32{uint32((m.n + bn - 1) / bn), uint32((rows + bm - 1) / bm), 1}
	}
	if large := grid(128, 128); rows > 64 && m.n > 64 && int(large[0]*large[1]) >= s.dev.info.Multiprocs/2 {
		s.launch(names.module, names.large, large, [3]uint32{256, 1, 1}, 0)
		return
	}
	s.launch(names.module, names.small, grid(64, 32), [3]uint32{128, 1, 1}, 0)
}

// fastDim is the widest head that attention on tensor cores takes.
const fastDim = 128

// fastTiles is the attention of the plan's tiles on tensor cores: a CTA follows up
// to four query heads that share their keys.
func (s *stream) fastTiles(dst, q tensor.Tensor, layer int, scale float32, window int) {
	heads, d, hq := s.plan.segs[0].KV[0].Dim(1), q.Dim(2), q.Dim(1)
	group := hq / heads
	each := min(group, 4)
	name := "fastTile128"
	if d <= 64 {
		name = "fastTile64"
	}
	s.view(s.view(s.cache(s.kernel(), layer, heads, d, window), dst), q).Ptr(s.plan.tileAt).Float32(scale)
	s.launch("fastattention", name, [3]uint32{uint32(s.plan.tiles), uint32(heads), uint32((group + each - 1) / each)}, [3]uint32{uint32(64 * each), 1, 1}, 0)
}

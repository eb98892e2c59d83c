package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"samebit/backend"
	"samebit/backend/cuda/driver"
	"samebit/tensor"
)

// panelWidth is the number of outputs whose values lie side by side, one per lane
// of a warp (kernels/weights.cuh).
const panelWidth = 32

// format says how a storage type lies in a panel.
type format struct {
	name  string // in the names of kernels
	unit  int    // values of a unit
	words int    // 32-bit words of a unit, per output
}

// formats in the order of the enumeration Type of kernels/weights.cuh. The float
// types have units of 16 bytes.
var formats = map[tensor.DType]struct {
	number int
	format
}{
	tensor.F32:  {0, format{"F32", 4, 4}},
	tensor.BF16: {1, format{"BF16", 8, 4}},
	tensor.F16:  {2, format{"F16", 8, 4}},
	tensor.Q8_0: {3, format{"Q8_0", 64, 17}},
	tensor.Q4_0: {4, format{"Q4_0", 64, 9}},
	tensor.Q4_1: {5, format{"Q4_1", 64, 10}},
	tensor.Q5_0: {6, format{"Q5_0", 64, 11}},
	tensor.Q5_1: {7, format{"Q5_1", 64, 12}},
	tensor.Q2_K: {8, format{"Q2_K", 256, 21}},
	tensor.Q3_K: {9, format{"Q3_K", 256, 28}},
	tensor.Q4_K: {10, format{"Q4_K", 256, 36}},
	tensor.Q5_K: {11, format{"Q5_K", 256, 44}},
	tensor.Q6_K: {12, format{"Q6_K", 256, 53}},
}

// weight is a packed matrix on the device.
type weight struct {
	dev    *Device
	ptr    driver.Ptr
	n, k   int
	dt     tensor.DType
	number int
	panel  int    // bytes
	gemv   string // module
	gemv1  string // kernels
	gemv4  string
	gemm   string // module
	small  string // kernels
	large  string
}

func (w *weight) Out() int            { return w.n }
func (w *weight) In() int             { return w.k }
func (w *weight) DType() tensor.DType { return w.dt }
func (w *weight) Bytes() int64        { return int64(w.panels()) * int64(w.panel) }
func (w *weight) Aliases() bool       { return false }
func (w *weight) panels() int         { return (w.n + panelWidth - 1) / panelWidth }

// stagingBytes is the least size of the page-locked memory that weights pass
// through.
const stagingBytes = 4 << 20

// Pack lays a weight out in panels and copies it to the device.
func (d *Device) Pack(t tensor.Tensor, use backend.Use) (backend.Weight, error) {
	if err := backend.CheckPack(t, use); err != nil {
		return nil, err
	}
	raw, ok := t.Raw()
	if !ok {
		return nil, fmt.Errorf("cuda: Pack: %v is not in this process's memory", t)
	}
	f := formats[t.DType()]
	w := &weight{dev: d, n: t.Dim(0), k: t.Dim(1), dt: t.DType(), number: f.number,
		gemv: "gemv_" + f.name, gemv1: "gemv1_" + f.name, gemv4: "gemv4_" + f.name, gemm: "gemm_" + f.name, small: "gemmSmall_" + f.name, large: "gemmLarge_" + f.name}
	k := w.k
	if !t.DType().Quantised() {
		k = (k + 7) / 8 * 8 // kernels read eight values at a time
	}
	units := (k + f.unit - 1) / f.unit
	w.panel = units * f.words * 4 * panelWidth

	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("cuda: Pack: device %w", backend.ErrClosed)
	}
	if need := max(w.panel, stagingBytes); len(d.staging) < need {
		host, err := d.ctx.AllocHost(need)
		if err != nil {
			return nil, fmt.Errorf("cuda: Pack of %v: staging of %d bytes: %w", t, need, err)
		}
		if d.staging != nil {
			if err := d.ctx.FreeHost(d.staging); err != nil {
				return nil, errors.Join(fmt.Errorf("cuda: Pack of %v: %w", t, err), d.ctx.FreeHost(host))
			}
		}
		d.staging = host
	}
	ptr, err := d.ctx.Alloc(int(w.Bytes()))
	if err != nil {
		return nil, fmt.Errorf("cuda: Pack of %v: %w", t, err)
	}
	w.ptr = ptr
	rowBytes := t.DType().Bytes(w.k)
	at := min(len(d.staging)/w.panel, w.panels()) // panels per copy
	for p := 0; p < w.panels(); p += at {
		n := min(at, w.panels()-p)
		packPanels(d.staging[:n*w.panel], raw, rowBytes, p, n, w, f.format, units)
		if err = d.ctx.CopyIn(d.service, ptr+driver.Ptr(p*w.panel), d.staging[:n*w.panel]); err == nil {
			err = d.ctx.Sync(d.service)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("cuda: Pack of %v: %w", t, err), d.ctx.Free(ptr))
		}
	}
	d.held++
	return w, nil
}

// Unpack frees a weight.
func (d *Device) Unpack(w backend.Weight) {
	r, ok := w.(*weight)
	if !ok || r.dev != d {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.ptr == 0 {
		return
	}
	d.ctx.Free(r.ptr) // a lost device has freed it already
	r.ptr = 0
	d.release()
}

// packPanels lays out panels [first, first+n), on all processors.
func packPanels(dst, raw []byte, rowBytes, first, n int, w *weight, f format, units int) {
	workers := min(runtime.GOMAXPROCS(0), n)
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			for p := i; p < n; p += workers {
				panel := dst[p*w.panel : (p+1)*w.panel]
				clear(panel)
				for lane := range min(panelWidth, w.n-(first+p)*panelWidth) {
					row := raw[((first+p)*panelWidth+lane)*rowBytes:][:rowBytes]
					packRow(panel, row, lane, w.dt, f, units)
				}
			}
		})
	}
	wg.Wait()
}

// packRow lays one row out as one lane of a panel.
func packRow(panel, row []byte, lane int, dt tensor.DType, f format, units int) {
	if !dt.Quantised() { // units of 16 bytes
		for u := 0; 16*u < len(row); u++ {
			copy(panel[16*(u*panelWidth+lane):][:16], row[16*u:])
		}
		return
	}
	var unit [53 * 4]byte
	block := dt.BlockBytes()
	for u := range units {
		clear(unit[:])
		if f.unit == 64 {
			pair(unit[:], row[2*u*block:], block, dt)
		} else {
			copy(unit[:], row[u*block:][:block])
		}
		for i := range f.words {
			copy(panel[4*((u*f.words+i)*panelWidth+lane):][:4], unit[4*i:])
		}
	}
}

// pair joins two blocks of 32 values, or the last one and none: scales and minima,
// then fifth bits, then codes, so that every field begins at a word.
func pair(unit, blocks []byte, block int, dt tensor.DType) {
	head, fifth := 2, 0 // bytes of scales and of fifth bits of a block
	switch dt {
	case tensor.Q4_1:
		head = 4
	case tensor.Q5_0:
		fifth = 4
	case tensor.Q5_1:
		head, fifth = 4, 4
	}
	codes := block - head - fifth
	for b := range min(2, len(blocks)/block) {
		s := blocks[b*block : (b+1)*block]
		copy(unit[b*head:], s[:head])
		at := 2 * head
		copy(unit[at+b*fifth:], s[head:head+fifth])
		at += 2 * fifth
		copy(unit[at+b*codes:], s[head+fifth:])
	}
}

// params appends a weight as the struct of kernels/weights.cuh.
func (w *weight) params(p *driver.Params) *driver.Params {
	return p.Ptr(w.ptr).Uint64(uint64(w.panel)).Int32(int32(w.n)).Int32(int32(w.k)).Int32(int32(w.number)).Int32(0)
}

// table appends a weight to a table of experts.
func (w *weight) table(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(w.ptr))
	b = binary.LittleEndian.AppendUint64(b, uint64(w.panel))
	for _, v := range [4]int{w.n, w.k, w.number, 0} {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	return b
}

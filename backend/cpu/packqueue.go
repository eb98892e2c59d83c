package cpu

import (
	"fmt"
	"sort"
	"sync/atomic"
	"unsafe"

	"samebit/backend"
	"samebit/backend/cpu/internal/panel"
	"samebit/tensor"
)

// PackQueue returns two functions that pack weights together, so that small ones keep
// all workers busy as well. add is [Device.Pack] but for the packing: the tensor's bytes
// are read by pack, before which the weight serves for nothing. pack packs what was
// added since it was last called. It calls read, unless that is nil, for parts [i, j) of
// a tensor's bytes that together are all of them, each once, from several workers side
// by side, right after they packed that part: what else must be computed of the bytes,
// such as a checksum, then finds them in the cache. After an error of pack none of its
// weights is packed, and parts may be missing.
//
// One goroutine uses a queue; a device may have several.
func (d *Device) PackQueue() (add func(t tensor.Tensor, use backend.Use, read func(i, j int)) (backend.Weight, error), pack func() error) {
	q := &packQueue{dev: d}
	return func(t tensor.Tensor, use backend.Use, read func(i, j int)) (backend.Weight, error) {
		w, err := q.add(t, use, read)
		if err != nil {
			return nil, err
		}
		return w, nil
	}, q.pack
}

type packQueue struct {
	dev     *Device
	waiting []*packing
}

func (q *packQueue) add(t tensor.Tensor, use backend.Use, read func(i, j int)) (*weight, error) {
	d := q.dev
	if err := backend.CheckPack(t, use); err != nil {
		return nil, err
	}
	if d.closed.Load() {
		return nil, fmt.Errorf("cpu: Pack: device %w", backend.ErrClosed)
	}
	raw, ok := t.Raw()
	if !ok {
		return nil, fmt.Errorf("cpu: Pack: %v is not in this process's memory", t)
	}
	w := &weight{dev: d, n: t.Dim(0), k: t.Dim(1), dt: t.DType()}
	if w.codec, ok = codec(d.set, w.dt); !ok {
		return nil, fmt.Errorf("cpu: Pack: weights of type %v: %w", w.dt, backend.ErrUnsupported)
	}
	q.waiting = append(q.waiting, &packing{w: w, src: raw, stride: w.dt.Bytes(w.k), read: read})
	return w, nil
}

func (q *packQueue) pack() error {
	list := q.waiting
	q.waiting = nil
	for _, p := range list {
		p.tryNarrow()
	}
	err := q.lay(list)
	if err == nil {
		var wide []*packing
		for _, p := range list {
			if p.narrow != nil && !p.narrowed() {
				wide = append(wide, p)
			}
		}
		err = q.lay(wide)
	}
	if err != nil {
		for _, p := range list {
			p.w.free()
		}
	}
	return err
}

// lay gives weights memory for panels of their codecs and packs them.
func (q *packQueue) lay(list []*packing) error {
	d := q.dev
	b := batch{list: list}
	for _, p := range list {
		w := p.w
		w.size = w.codec.Bytes(w.k)
		mem, err := d.slabs.get(panel.Count(w.n) * w.size)
		if err != nil {
			return err
		}
		w.mem, w.panels = mem, mem.b
		b.add(p)
	}
	if d.pool.Threads() > 1 {
		d.pool.Run(touching(b.pages), len(b.pages))
	}
	d.pool.Run(&b, b.chunks)
	return nil
}

// readBytes is about how much of the source a worker reads at a time.
const readBytes = 64 << 10

// batch is a pool.Task that packs several weights.
type batch struct {
	list   []*packing
	first  []int // chunk of each
	chunks int
	pages  []*byte // one byte of each huge page that the panels lie in
}

func (b *batch) add(p *packing) {
	per := max(1, readBytes/(panel.Width*p.stride))
	p.per = per
	b.first = append(b.first, b.chunks)
	b.chunks += (panel.Count(p.w.n) + per - 1) / per
	page := func(x *byte) uintptr { return uintptr(unsafe.Pointer(x)) / hugePage }
	for m := p.w.panels; len(m) > 0; {
		if n := len(b.pages); n == 0 || page(b.pages[n-1]) != page(&m[0]) {
			b.pages = append(b.pages, &m[0])
		}
		m = m[min(len(m), hugePage-int(uintptr(unsafe.Pointer(&m[0]))%hugePage)):]
	}
}

func (b *batch) Do(worker, chunk int) {
	i := sort.SearchInts(b.first, chunk+1) - 1
	b.list[i].Do(worker, chunk-b.first[i])
}

// touching has the workers ask for huge pages, whose zeros nobody uses yet, one each:
// those that first write to the same page side by side would each clear one.
type touching []*byte

func (t touching) Do(_, chunk int) { *t[chunk] = 0 }

// packing is a pool.Task that fills a weight's panels.
type packing struct {
	w      *weight
	src    []byte
	stride int
	per    int            // panels of a chunk; 0 means 1
	read   func(i, j int) // of PackQueue

	narrow func(dst, src []byte, stride, rows, k int) bool // gemm.Narrower; nil: the codec packs
	wide   atomic.Bool                                     // narrow met another value
}

func (p *packing) Do(_, chunk int) {
	w, per := p.w, max(1, p.per)
	first, last := chunk*per, min((chunk+1)*per, panel.Count(w.n))
	for i := first; i < last; i++ {
		dst, src := w.panels[i*w.size:(i+1)*w.size], p.src[i*panel.Width*p.stride:]
		rows := min(panel.Width, w.n-i*panel.Width)
		switch {
		case p.narrow == nil:
			w.codec.Pack(dst, src, p.stride, rows, w.k)
		case !p.wide.Load() && !p.narrow(dst, src, p.stride, rows, w.k):
			p.wide.Store(true)
		}
	}
	if p.read != nil { // after the packing, whose many streams memory serves faster than one
		p.read(first*panel.Width*p.stride, min(last*panel.Width, w.n)*p.stride)
	}
}

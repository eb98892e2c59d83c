package emu

import "math/bits"

// watched is what is known of one unit of shared memory: who wrote and read it
// last, and when. Time passes at barriers only, so that two accesses are ordered
// exactly if a barrier lies between them, whatever order the emulator ran them in.
type watched struct {
	wrote, read uint32 // times; 0 never
	writer      uint16 // thread
	reader      uint16 // thread, or manyOf a warp, or many
}

const (
	manyOf = 0x8000 // several lanes of the warp in the low bits
	many   = 0xffff // of several warps
)

// sharedSpan checks one lane's access and returns where in the block's shared memory
// it begins.
func (w *warp) sharedSpan(in *inst, lane, bytes int) (int, bool) {
	n, off := uint64(len(w.b.shared)), w.addr[lane]-sharedBase // below it, off is huge
	if off > n || n-off < uint64(bytes) {
		w.fail(OutOfBounds, in.line, lane, "%d bytes at %#x, where %d bytes of shared memory begin at %#x", bytes, w.addr[lane], n, sharedBase)
		return 0, false
	}
	return int(off), true
}

// ordered reports whether an access of thread t at a time lies before the
// current one of w.
func (w *warp) ordered(t uint16, time uint32) bool {
	if int(t>>5) == w.index {
		return time < w.epoch
	}
	return time < w.b.epoch
}

// noteRead records a read by lanes lane to last and reports whether it is allowed.
func (w *warp) noteRead(in *inst, lane, last, off, bytes int) bool {
	g := w.b.p.grain
	t := uint16(w.index*32 + lane)
	me := t // how these readers are written down
	if last > lane {
		me = manyOf | t>>5
	}
	units := w.b.watch[off>>g : (off+bytes+1<<g-1)>>g]
	for i := range units {
		s := &units[i]
		if s.wrote >= w.b.epoch && (s.writer != t || last > lane) {
			if !w.ordered(s.writer, s.wrote) {
				if s.writer == t {
					lane++ // the first reader wrote it, the next did not
				}
				w.fail(Race, in.line, lane, "thread %d wrote the word at %#x since the last barrier", s.writer, off)
				return false
			}
		}
		if s.wrote < w.b.born {
			w.fail(Uninitialised, in.line, lane, "shared memory at %#x", off)
			return false
		}
		switch {
		case s.read < w.b.epoch:
			s.reader = me
		case s.reader == me, s.reader == many:
		case s.reader&manyOf != 0 && s.reader&^manyOf == t>>5, s.reader&manyOf == 0 && s.reader>>5 == t>>5:
			s.reader = manyOf | t>>5
		default:
			s.reader = many
		}
		s.read = w.b.clock
	}
	return true
}

// noteWrite records a write and reports whether it is allowed.
func (w *warp) noteWrite(in *inst, lane, off, bytes int) bool {
	g := w.b.p.grain
	t := uint16(w.index*32 + lane)
	for u := off >> g; u < (off+bytes+1<<g-1)>>g; u++ {
		s := &w.b.watch[u]
		if s.wrote >= w.b.epoch && s.writer != t && !w.ordered(s.writer, s.wrote) {
			w.fail(Race, in.line, lane, "thread %d wrote the word at %#x since the last barrier", s.writer, off)
			return false
		}
		if s.read >= w.b.epoch && s.reader != t {
			switch {
			case s.reader == many:
				w.fail(Race, in.line, lane, "several threads read the word at %#x since the last barrier", off)
				return false
			case s.reader&manyOf != 0:
				if int(s.reader&^manyOf) != w.index || s.read >= w.epoch {
					w.fail(Race, in.line, lane, "threads of warp %d read the word at %#x since the last barrier", s.reader&^manyOf, off)
					return false
				}
			case !w.ordered(s.reader, s.read):
				w.fail(Race, in.line, lane, "thread %d read the word at %#x since the last barrier", s.reader, off)
				return false
			}
		}
		s.wrote, s.writer = w.b.clock, t
	}
	return true
}

func (w *warp) loadShared(in *inst, m uint32) {
	bytes := int(in.n) * int(in.size)
	if bytes > 1 && !w.aligned(in, m, uint64(bytes)) {
		return
	}
	w.b.count.banks(w, m, bytes)
	simple := in.size == 4 && in.e == 0
	for i := 0; i < 32; i++ {
		if m>>i&1 == 0 {
			continue
		}
		// Neighbours that read the same place are one.
		last := i
		for last < 31 && m>>(last+1)&1 != 0 && w.addr[last+1] == w.addr[i] {
			last++
		}
		off, ok := w.sharedSpan(in, i, bytes)
		if !ok || !w.noteRead(in, i, last, off, bytes) {
			return
		}
		b := w.b.shared[off : off+bytes]
		if !simple {
			for ; i <= last; i++ {
				w.put(in, i, b)
			}
			i--
			continue
		}
		for k := 0; len(b) >= 4; k++ {
			v := le.Uint32(b)
			r := &w.r32[in.vec[k&3]]
			for l := i; l <= last; l++ {
				r[l&31] = v
			}
			b = b[4:]
		}
		i = last
	}
}

func (w *warp) storeShared(in *inst, m uint32) {
	bytes := int(in.n) * int(in.size)
	if bytes > 1 && !w.aligned(in, m, uint64(bytes)) {
		return
	}
	w.b.count.banks(w, m, bytes)
	for x := m; x != 0; x &= x - 1 {
		i := bits.TrailingZeros32(x)
		off, ok := w.sharedSpan(in, i, bytes)
		if !ok || !w.noteWrite(in, i, off, bytes) {
			return
		}
		w.get(in, i, w.b.shared[off:off+bytes])
	}
}

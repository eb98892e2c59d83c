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

// sharedSpan checks one lane's access and returns where it begins.
func (w *warp) sharedSpan(in *inst, lane, bytes int) (int, bool) {
	n, addr := len(w.b.shared), w.addr[lane]
	if addr > uint64(n) || uint64(n)-addr < uint64(bytes) {
		w.fail(OutOfBounds, in.line, lane, "%d bytes at %#x of %d bytes of shared memory", bytes, addr, n)
		return 0, false
	}
	return int(addr), true
}

// ordered reports whether an access of thread t at a time lies before the
// current one of w.
func (w *warp) ordered(t uint16, time uint32) bool {
	if int(t>>5) == w.index {
		return time < w.epoch
	}
	return time < w.b.epoch
}

// noteRead records a read and reports whether it is allowed.
func (w *warp) noteRead(in *inst, lane, off, bytes int) bool {
	g := w.b.p.grain
	t := uint16(w.index*32 + lane)
	for u := off >> g; u < (off+bytes+1<<g-1)>>g; u++ {
		s := &w.b.watch[u]
		if s.wrote < w.b.born {
			w.fail(Uninitialised, in.line, lane, "shared memory at %#x", off)
			return false
		}
		if s.wrote >= w.b.epoch && s.writer != t && !w.ordered(s.writer, s.wrote) {
			w.fail(Race, in.line, lane, "thread %d wrote the word at %#x since the last barrier", s.writer, off)
			return false
		}
		if s.read < w.b.epoch {
			s.reader = t
		} else if s.reader != t {
			switch {
			case s.reader == many:
			case s.reader&manyOf != 0 && int(s.reader&^manyOf) == w.index, s.reader&manyOf == 0 && s.reader>>5 == t>>5:
				s.reader = manyOf | t>>5
			default:
				s.reader = many
			}
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
	for x := m; x != 0; x &= x - 1 {
		i := bits.TrailingZeros32(x)
		off, ok := w.sharedSpan(in, i, bytes)
		if !ok || !w.noteRead(in, i, off, bytes) {
			return
		}
		b := w.b.shared[off : off+bytes]
		if simple {
			for k := 0; len(b) >= 4; k++ {
				w.r32[in.vec[k&3]][i] = le.Uint32(b)
				b = b[4:]
			}
			continue
		}
		w.put(in, i, b)
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

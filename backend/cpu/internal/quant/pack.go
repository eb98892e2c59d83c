package quant

import (
	"encoding/binary"
	"math"
	"unsafe"

	"samebit/internal/blockq"
)

var le = binary.LittleEndian

// codes are the unsigned codes of a chunk, four inputs to a word: input 4f+b
// is byte b of word f.
type codes [8]uint32

// set takes a field of each byte of b.
func (q *codes) set(b []byte, shift int, mask uint32) {
	b = b[:32]
	for f := range q {
		q[f] = le.Uint32(b[4*f:4*f+4]) >> (shift & 31) & mask
	}
}

// or adds a field of each byte of b above the codes' bits.
func (q *codes) or(b []byte, shift int, mask uint32, up int) {
	b = b[:32]
	for f := range q {
		q[f] |= le.Uint32(b[4*f:4*f+4]) >> (shift & 31) & mask << (up & 31)
	}
}

// pack fills a panel. Missing rows get zero scales, hence zero weights.
func (l *layout) pack(dst, src []byte, stride, rows, k int) {
	dst = dst[:l.bytes(k)]
	if rows < 32 {
		clear(dst)
	}
	nv := l.t.BlockValues()
	for b := 0; b < k/nv; b++ {
		for r := range rows {
			file := src[r*stride+b*l.fileLen:][:l.fileLen]
			if nv == 32 {
				l.packSimple(dst[b*l.chunk:][:l.chunk], file, r)
			} else {
				l.packK(dst[b*2*l.blockLen:][:2*l.blockLen], file, r)
			}
		}
	}
}

// packNative is pack by assembly, which takes whole panels.
func (l *layout) packNative(f packFunc, dst, src []byte, stride, rows, k int) {
	dst = dst[:l.bytes(k)]
	if blocks := k / l.t.BlockValues(); rows < 32 || blocks == 0 || stride > math.MaxInt32/32 || uintptr(unsafe.Pointer(&dst[0]))%64 != 0 {
		l.pack(dst, src, stride, rows, k)
	} else {
		_ = src[31*stride+blocks*l.fileLen-1]
		f(&dst[0], &src[0], stride, blocks)
	}
}

func (l *layout) packSimple(dst, file []byte, r int) {
	copy(dst[2*r:2*r+2], file)
	file = file[2:]
	if l.min {
		copy(dst[64+2*r:64+2*r+2], file)
		file = file[2:]
	}
	var q codes
	if l.width == 8 {
		for f := range q {
			q[f] = le.Uint32(file[4*f:]) ^ 0x80808080 // q + 128
		}
		l.put(dst, &q, r)
		return
	}
	var fifth uint32
	if l.hi == 1 {
		fifth = le.Uint32(file)
		file = file[4:]
	}
	for f := range 4 {
		w := le.Uint32(file[4*f:])
		q[f] = w & 0x0f0f0f0f
		q[f+4] = w >> 4 & 0x0f0f0f0f
	}
	if l.hi == 1 {
		for f := range q {
			q[f] |= spread(fifth>>(4*f)) << 4
		}
	}
	l.put(dst, &q, r)
}

// spread puts the low four bits of x into the low bits of four bytes.
func spread(x uint32) uint32 {
	return x & 15 * 0x00204081 & 0x01010101
}

// packK splits a file block of 256 inputs into two blocks of 128.
func (l *layout) packK(dst, file []byte, r int) {
	var q codes
	switch l.t {
	case blockq.Q4_K, blockq.Q5_K:
		var sc, mn [8]uint8
		blockq.Scales45(&sc, &mn, file[4:16])
		qs := file[16:]
		var qh []byte
		if l.hi == 1 {
			qh, qs = file[16:48], file[48:]
		}
		for c := range 8 {
			dst := l.kChunk(dst, file[0:2], file[2:4], r, c)
			dst[r], dst[32+r] = sc[c], mn[c]
			q.set(qs[c/2*32:], c&1*4, 0x0f0f0f0f)
			if l.hi == 1 {
				q.or(qh, c, 0x01010101, 4)
			}
			l.put(dst, &q, r)
		}
	case blockq.Q6_K:
		ql, qh, sc := file[:128], file[128:192], file[192:208]
		for c := range 8 {
			dst := l.kChunk(dst, file[208:210], nil, r, c)
			dst[r], dst[32+r] = sc[2*c], sc[2*c+1]
			n, j := c/4, c%4
			q.set(ql[64*n+32*(j&1):], j/2*4, 0x0f0f0f0f)
			q.or(qh[32*n:], 2*j, 0x03030303, 4)
			l.put(dst, &q, r)
		}
	case blockq.Q2_K:
		sc, qs := file[:16], file[16:80]
		for c := range 8 {
			dst := l.kChunk(dst, file[80:82], file[82:84], r, c)
			dst[r], dst[32+r] = sc[2*c], sc[2*c+1]
			q.set(qs[c/4*32:], c%4*2, 0x03030303)
			l.put(dst, &q, r)
		}
	case blockq.Q3_K:
		var sc [16]int8
		blockq.Scales3(&sc, file[96:108])
		hmask, qs := file[:32], file[32:96]
		for c := range 8 {
			dst := l.kChunk(dst, file[108:110], nil, r, c)
			dst[r], dst[32+r] = byte(sc[2*c]), byte(sc[2*c+1])
			q.set(qs[c/4*32:], c%4*2, 0x03030303)
			q.or(hmask, c, 0x01010101, 2)
			l.put(dst, &q, r)
		}
	}
}

// kChunk writes row r of the head when chunk c of 8 is the first of its block
// and returns the chunk.
func (l *layout) kChunk(dst, d, dmin []byte, r, c int) []byte {
	b := dst[c/4*l.blockLen:]
	if c%4 == 0 {
		copy(b[2*r:2*r+2], d)
		if l.min {
			copy(b[64+2*r:64+2*r+2], dmin)
		}
	}
	return b[l.head+c%4*l.chunk:][:l.chunk]
}

// put writes the planes of row r of a chunk.
func (l *layout) put(chunk []byte, q *codes, r int) {
	if l.hi == 1 {
		var z uint32
		for f, w := range q {
			z |= w >> (l.width & 31) & 0x01010101 << f
		}
		le.PutUint32(chunk[l.bits+4*r:], z)
	}
	for h := range 2 {
		half, q := chunk[l.halves+h*l.half:][:l.half], q[4*h:4*h+4]
		half = half[4*r:]
		switch l.width {
		case 8:
			for f, w := range q {
				le.PutUint32(half[128*f:], w)
			}
		case 4:
			const low = 0x0f0f0f0f
			le.PutUint32(half, q[0]&low|q[1]&low<<4)
			le.PutUint32(half[128:], q[2]&low|q[3]&low<<4)
		case 2:
			const low = 0x03030303
			le.PutUint32(half, q[0]&low|q[1]&low<<2|q[2]&low<<4|q[3]&low<<6)
		}
		if l.hi == 2 {
			const high = 0x30303030
			le.PutUint32(half[256:], q[0]&high>>4|q[1]&high>>2|q[2]&high|q[3]&high<<2)
		}
	}
}

// get is the inverse of put.
func (l *layout) get(q *codes, chunk []byte, r int) {
	for f := range q {
		half, g := chunk[l.halves+f/4*l.half+4*r:], f%4
		switch l.width {
		case 8:
			q[f] = le.Uint32(half[128*g:])
		case 4:
			q[f] = le.Uint32(half[g/2*128:]) >> (g % 2 * 4) & 0x0f0f0f0f
		case 2:
			q[f] = le.Uint32(half) >> (2 * g) & 0x03030303
		}
		switch l.hi {
		case 1:
			q[f] |= le.Uint32(chunk[l.bits+4*r:]) >> f & 0x01010101 << l.width
		case 2:
			q[f] |= le.Uint32(half[256:]) >> (2 * g) & 0x03030303 << 4
		}
	}
}

package emu

import (
	"encoding/binary"
	"math/bits"
	"strings"
)

var le = binary.LittleEndian

// hints are modifiers that say how to cache, or an order that the emulator keeps
// anyway.
var hints = []string{"volatile", "relaxed", "weak", "acquire", "release", "acq_rel", "gpu", "cta", "sys", "ca", "cg", "cs", "cv", "lu", "wb", "wt", "nc"}

func (c *compiler) takeHints() {
	for _, h := range hints {
		c.take(h)
	}
	for i := 0; i < len(c.mods); i++ {
		if strings.HasPrefix(c.mods[i], "L1::") || strings.HasPrefix(c.mods[i], "L2::") {
			c.take(c.mods[i])
			i--
		}
	}
}

func (c *compiler) takeSpace() space {
	return spaces["."+c.takeOf("global", "shared", "const", "local", "param")]
}

// address compiles the operand [register + offset] into in.a, in.off and in.wide:
// whether the register has 64 bits.
func (c *compiler) place(o operand) error {
	in := c.n.in
	if o.kind != opAddr {
		return c.fail("an address in brackets is wanted")
	}
	in.off = o.off
	switch {
	case o.v != nil:
		if o.v.space != in.space && in.space != generic {
			return c.fail("%s lies in another space", o.v.name)
		}
		in.wide = true
		c.addUse(c.constant(c.address(o.v), true), &in.a)
	case o.reg == nil:
		in.wide = true
		c.addUse(c.constant(0, true), &in.a)
	case o.reg.t.bits == 64 && o.reg.t.kind != 'f':
		in.wide = true
		c.addUse(c.virtualOf(o.reg), &in.a)
	case o.reg.t.bits == 32 && o.reg.t.kind != 'f' && (in.space == shared || in.space == local):
		c.addUse(c.virtualOf(o.reg), &in.a)
	default:
		return c.fail("%s is no address", o.reg.name)
	}
	return nil
}

// access reads what ld and st have in common.
func (c *compiler) access() (typ, error) {
	in := c.n.in
	t, err := c.takeType()
	if err != nil {
		return t, err
	}
	if t.kind == 'p' {
		return t, c.fail("the type %v is not supported", t)
	}
	in.n, in.size, in.signed = 1, uint8(t.bytes()), t.signed()
	switch c.takeOf("v2", "v4") {
	case "v2":
		in.n = 2
	case "v4":
		in.n = 4
	}
	if int(in.n)*int(in.size) > 16 {
		return t, c.fail("an access has at most 16 bytes")
	}
	in.space = c.takeSpace()
	c.takeHints()
	switch in.space {
	case shared:
		in.class = Shared
	case local:
		in.class = Local
	case param:
		in.class = Move
	default:
		in.class = Global
	}
	if in.space == shared || in.space == generic {
		c.grain = min(c.grain, bits.TrailingZeros8(in.size))
	}
	in.id = int32(c.p.caches)
	c.p.caches++
	return t, nil
}

// elements compiles the register or the vector of an access.
func (c *compiler) elements(o operand, t typ, load bool) error {
	in := c.n.in
	parts := []operand{o}
	if in.n > 1 {
		if o.kind != opVector || len(o.parts) != int(in.n) {
			return c.fail("a vector of %d registers is wanted", in.n)
		}
		parts = o.parts
	}
	for i, e := range parts {
		var err error
		if load {
			err = c.defWide(e, t, &in.vec[i], true)
		} else {
			err = c.useWide(e, t, &in.vec[i], true)
		}
		if err != nil {
			return err
		}
		wide := t.bits == 64
		if e.kind == opReg {
			wide = e.reg.t.bits == 64
		}
		if i == 0 {
			in.e = int32(bit(wide))
		} else if in.e != int32(bit(wide)) {
			return c.fail("the registers differ in width")
		}
	}
	return nil
}

func buildLd(c *compiler) error {
	in := c.n.in
	t, err := c.access()
	if err != nil {
		return err
	}
	if err := c.args(2); err != nil {
		return err
	}
	if err := c.elements(c.st.args[0], t, true); err != nil {
		return err
	}
	if a := c.st.args[1]; in.space == param {
		return c.parameter(a, t)
	}
	switch in.space {
	case shared:
		in.run = func(w *warp, in *inst, m uint32) { w.addresses(in); w.loadShared(in, m) }
	case local:
		in.run = func(w *warp, in *inst, m uint32) { w.addresses(in); w.loadLocal(in, m) }
	case generic:
		in.run = func(w *warp, in *inst, m uint32) {
			w.addresses(in)
			w.bySpace(in, m, (*warp).loadGlobal, (*warp).loadShared, (*warp).loadLocal)
		}
	default:
		in.run = func(w *warp, in *inst, m uint32) { w.addresses(in); w.loadGlobal(in, m) }
	}
	return c.place(c.st.args[1])
}

// parameter reads a kernel's parameter, which is known before it runs.
func (c *compiler) parameter(a operand, t typ) error {
	in := c.n.in
	if a.kind == opAddr && a.reg != nil {
		in.run = func(w *warp, in *inst, m uint32) { w.addresses(in); w.loadParam(in, m) }
		return c.place(a)
	}
	if a.kind != opAddr || a.v == nil || a.v.space != param {
		return c.fail("a parameter is wanted")
	}
	off := int64(a.v.off) + a.off
	if a.off < 0 || a.off+int64(in.n)*int64(in.size) > int64(a.v.size) || a.off%int64(in.size) != 0 {
		return c.fail("bytes %d to %d lie outside parameter %s of %d", a.off, a.off+int64(in.n)*int64(in.size)-1, a.v.name, a.v.size)
	}
	src := new([4]int32)
	for i := range int(in.n) {
		c.addUse(c.fixedOf(fixed{kind: isParam, val: uint64(off) + uint64(i)*uint64(in.size), size: in.size, sign: in.signed, wide: in.e == 1}), &src[i])
	}
	in.run = func(w *warp, in *inst, m uint32) {
		for i := range int(in.n) {
			if in.e == 1 {
				w.r64[in.vec[i]].blend(&w.r64[src[i]], m)
			} else {
				w.r32[in.vec[i]].blend(&w.r32[src[i]], m)
			}
		}
	}
	return nil
}

func buildSt(c *compiler) error {
	in := c.n.in
	t, err := c.access()
	if err != nil {
		return err
	}
	if err := c.args(2); err != nil {
		return err
	}
	if err := c.elements(c.st.args[1], t, false); err != nil {
		return err
	}
	switch in.space {
	case shared:
		in.run = func(w *warp, in *inst, m uint32) { w.addresses(in); w.storeShared(in, m) }
	case local:
		in.run = func(w *warp, in *inst, m uint32) { w.addresses(in); w.storeLocal(in, m) }
	case generic:
		in.run = func(w *warp, in *inst, m uint32) {
			w.addresses(in)
			w.bySpace(in, m, (*warp).storeGlobal, (*warp).storeShared, (*warp).storeLocal)
		}
	case global:
		in.run = func(w *warp, in *inst, m uint32) { w.addresses(in); w.storeGlobal(in, m) }
	default:
		return c.fail("this space cannot be written")
	}
	return c.place(c.st.args[0])
}

// addresses computes the addresses of all lanes.
func (w *warp) addresses(in *inst) {
	if in.wide {
		for i, a := range &w.r64[in.a] {
			w.addr[i] = a + uint64(in.off)
		}
		return
	}
	for i, a := range &w.r32[in.a] {
		w.addr[i] = uint64(a + uint32(in.off))
	}
}

// bySpace runs a generic access for the lanes of each space.
func (w *warp) bySpace(in *inst, m uint32, g, s, l func(w *warp, in *inst, m uint32)) {
	var ms, ml uint32
	for i, a := range &w.addr {
		switch {
		case a-windows[shared] < windowSize:
			ms |= 1 << i
			w.addr[i] -= windows[shared]
		case a-windows[local] < windowSize:
			ml |= 1 << i
			w.addr[i] -= windows[local]
		}
	}
	if x := m &^ (ms | ml); x != 0 {
		g(w, in, x)
	}
	if m&ms != 0 {
		s(w, in, m&ms)
	}
	if m&ml != 0 {
		l(w, in, m&ml)
	}
}

// aligned checks the addresses of the lanes of a mask.
func (w *warp) aligned(in *inst, m uint32, bytes uint64) bool {
	for x := m; x != 0; x &= x - 1 {
		i := bits.TrailingZeros32(x)
		if w.addr[i]&(bytes-1) != 0 {
			w.fail(Misaligned, in.line, i, "address %#x is no multiple of %d", w.addr[i], bytes)
			return false
		}
	}
	return true
}

// put writes the elements of a lane to its registers.
func (w *warp) put(in *inst, lane int, b []byte) {
	for k := range int(in.n) {
		var v uint64
		switch in.size {
		case 1:
			v = uint64(b[k])
			if in.signed {
				v = uint64(int64(int8(v)))
			}
		case 2:
			v = uint64(le.Uint16(b[2*k:]))
			if in.signed {
				v = uint64(int64(int16(v)))
			}
		case 4:
			v = uint64(le.Uint32(b[4*k:]))
			if in.signed {
				v = uint64(int64(int32(v)))
			}
		default:
			v = le.Uint64(b[8*k:])
		}
		if in.e == 1 {
			w.r64[in.vec[k]][lane] = v
		} else {
			w.r32[in.vec[k]][lane] = uint32(v)
		}
	}
}

// get reads the elements of a lane from its registers.
func (w *warp) get(in *inst, lane int, b []byte) {
	for k := range int(in.n) {
		var v uint64
		if in.e == 1 {
			v = w.r64[in.vec[k]][lane]
		} else {
			v = uint64(w.r32[in.vec[k]][lane])
		}
		switch in.size {
		case 1:
			b[k] = byte(v)
		case 2:
			le.PutUint16(b[2*k:], uint16(v))
		case 4:
			le.PutUint32(b[4*k:], uint32(v))
		default:
			le.PutUint64(b[8*k:], v)
		}
	}
}

// contiguous reports whether the lanes of a full warp follow each other.
func (w *warp) contiguous(step uint64) bool {
	a := w.addr[0]
	for i := range &w.addr {
		if w.addr[i] != a+uint64(i)*step {
			return false
		}
	}
	return true
}

const ones = 0x0101010101010101

// allSet reports whether all bytes of a piece were written.
func allSet(set []byte) bool {
	for len(set) >= 8 {
		if le.Uint64(set) != ones {
			return false
		}
		set = set[8:]
	}
	for _, b := range set {
		if b == 0 {
			return false
		}
	}
	return true
}

func setAll(set []byte) {
	for len(set) >= 8 {
		le.PutUint64(set, ones)
		set = set[8:]
	}
	for i := range set {
		set[i] = 1
	}
}

// locate finds the bytes of one lane in global memory.
func (w *warp) locate(in *inst, lane int, bytes int) (*allocation, int) {
	addr := w.addr[lane]
	a := w.b.caches[in.id]
	if a != nil && addr >= a.base && addr-a.base < uint64(len(a.data)) && uint64(len(a.data))-(addr-a.base) >= uint64(bytes) {
		return a, int(addr - a.base)
	}
	a, off, ok := w.b.mem.span(addr, bytes)
	if !ok {
		k, why := w.b.mem.explain(addr, bytes)
		w.fail(k, in.line, lane, "%d bytes: %s", bytes, why)
		return nil, 0
	}
	w.b.caches[in.id] = a
	return a, off
}

func (w *warp) loadGlobal(in *inst, m uint32) {
	bytes := int(in.n) * int(in.size)
	if bytes > 1 && !w.aligned(in, m, uint64(bytes)) {
		return
	}
	w.b.count.sectors(w, m, bytes, &w.b.count.ReadSectors)
	w.b.count.GlobalRead += int64(bytes * bits.OnesCount32(m))
	if m == full && w.contiguous(uint64(bytes)) {
		if a, off, ok := w.whole(in, 32*bytes); ok && allSet(a.set[off:off+32*bytes]) {
			data := a.data[off : off+32*bytes]
			if in.size == 4 && in.e == 0 {
				for k := range int(in.n) {
					r := &w.r32[in.vec[k]]
					for i := range r {
						r[i] = le.Uint32(data[i*bytes+4*k:])
					}
				}
				return
			}
			for i := range 32 {
				w.put(in, i, data[i*bytes:])
			}
			return
		}
	}
	simple := in.size == 4 && in.e == 0 && in.n == 1
	for x := m; x != 0; x &= x - 1 {
		i := bits.TrailingZeros32(x)
		a, off := w.locate(in, i, bytes)
		if a == nil {
			return
		}
		if simple {
			if le.Uint32(a.set[off:]) == ones&0xffffffff {
				w.r32[in.vec[0]][i] = le.Uint32(a.data[off:])
				continue
			}
		}
		if !allSet(a.set[off : off+bytes]) {
			w.fail(Uninitialised, in.line, i, "byte %d of %s", off, a)
			return
		}
		w.put(in, i, a.data[off:off+bytes])
	}
}

// loadParam reads parameters at addresses that are computed.
func (w *warp) loadParam(in *inst, m uint32) {
	bytes := int(in.n) * int(in.size)
	if !w.aligned(in, m, uint64(bytes)) {
		return
	}
	p := w.b.params
	for x := m; x != 0; x &= x - 1 {
		i := bits.TrailingZeros32(x)
		a := w.addr[i]
		if a > uint64(len(p)) || uint64(len(p))-a < uint64(bytes) {
			w.fail(OutOfBounds, in.line, i, "%d bytes at %#x of %d bytes of parameters", bytes, a, len(p))
			return
		}
		w.put(in, i, p[a:a+uint64(bytes)])
	}
}

// whole finds the bytes of all lanes of a contiguous access.
func (w *warp) whole(in *inst, bytes int) (*allocation, int, bool) {
	addr := w.addr[0]
	a := w.b.caches[in.id]
	if a != nil && addr >= a.base && addr-a.base < uint64(len(a.data)) && uint64(len(a.data))-(addr-a.base) >= uint64(bytes) {
		return a, int(addr - a.base), true
	}
	a, off, ok := w.b.mem.span(addr, bytes)
	if ok {
		w.b.caches[in.id] = a
	}
	return a, off, ok
}

func (w *warp) storeGlobal(in *inst, m uint32) {
	bytes := int(in.n) * int(in.size)
	if bytes > 1 && !w.aligned(in, m, uint64(bytes)) {
		return
	}
	w.b.count.sectors(w, m, bytes, &w.b.count.WriteSectors)
	w.b.count.GlobalWritten += int64(bytes * bits.OnesCount32(m))
	if m == full && w.contiguous(uint64(bytes)) {
		if a, off, ok := w.whole(in, 32*bytes); ok && !a.readonly {
			data := a.data[off : off+32*bytes]
			for i := range 32 {
				w.get(in, i, data[i*bytes:])
			}
			setAll(a.set[off : off+32*bytes])
			return
		}
	}
	for x := m; x != 0; x &= x - 1 {
		i := bits.TrailingZeros32(x)
		a, off := w.locate(in, i, bytes)
		if a == nil {
			return
		}
		if a.readonly {
			w.fail(ReadOnly, in.line, i, "%s", a)
			return
		}
		w.get(in, i, a.data[off:off+bytes])
		setAll(a.set[off : off+bytes])
	}
}

// Local memory lies thread after thread.
func (w *warp) localOf(in *inst, lane, bytes int) (off int, ok bool) {
	n, addr := w.b.p.local, w.addr[lane]
	if addr > uint64(n) || uint64(n)-addr < uint64(bytes) {
		w.fail(OutOfBounds, in.line, lane, "%d bytes at %#x of %d bytes of local memory", bytes, addr, n)
		return 0, false
	}
	return (w.index*32+lane)*n + int(addr), true
}

func (w *warp) loadLocal(in *inst, m uint32) {
	bytes := int(in.n) * int(in.size)
	if !w.aligned(in, m, uint64(bytes)) {
		return
	}
	for x := m; x != 0; x &= x - 1 {
		i := bits.TrailingZeros32(x)
		off, ok := w.localOf(in, i, bytes)
		if !ok {
			return
		}
		if !allSet(w.b.localSet[off : off+bytes]) {
			w.fail(Uninitialised, in.line, i, "local memory at %#x", w.addr[i])
			return
		}
		w.put(in, i, w.b.local[off:off+bytes])
	}
}

func (w *warp) storeLocal(in *inst, m uint32) {
	bytes := int(in.n) * int(in.size)
	if !w.aligned(in, m, uint64(bytes)) {
		return
	}
	for x := m; x != 0; x &= x - 1 {
		i := bits.TrailingZeros32(x)
		off, ok := w.localOf(in, i, bytes)
		if !ok {
			return
		}
		w.get(in, i, w.b.local[off:off+bytes])
		setAll(w.b.localSet[off : off+bytes])
	}
}

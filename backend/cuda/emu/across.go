package emu

import (
	"math/bits"
)

// Instructions across lanes run when all lanes of their member mask have come;
// in.imm says which operand it is.

func buildShfl(c *compiler) error {
	if !c.take("sync") {
		return c.fail("only shfl.sync is supported")
	}
	t, err := c.takeType()
	if err != nil || t != types["b32"] {
		return c.fail("only .b32 is supported")
	}
	mode := c.takeOf("up", "down", "bfly", "idx")
	if mode == "" {
		return c.fail("one of .up, .down, .bfly and .idx is missing")
	}
	if err := c.args(5); err != nil {
		return err
	}
	in := c.n.in
	in.class, c.n.sync = Sync, true
	d := c.st.args[0]
	pair := d.kind == opPair
	if pair {
		if err := c.def(d.parts[1], types["pred"], &in.vec[0]); err != nil {
			return err
		}
		d = d.parts[0]
	}
	for i, p := range []*int32{&in.a, &in.b, &in.c, &in.e} {
		if err := c.use(c.st.args[1+i], types["b32"], p); err != nil {
			return err
		}
	}
	in.run = func(w *warp, in *inst, m uint32) {
		if !w.members(in, m) {
			return
		}
		src := w.r32[in.a]
		var out v32
		var valid uint32
		for i := range out {
			b, x := w.r32[in.b][i], w.r32[in.c][i]
			seg, lane := int(x>>8&31), i
			most, least := lane&seg|int(x&31)&^seg, lane&seg
			j := 0
			ok := false
			switch mode {
			case "up":
				j = lane - int(b&31)
				ok = j >= most
			case "down":
				j = lane + int(b&31)
				ok = j <= most
			case "bfly":
				j = lane ^ int(b&31)
				ok = j <= most
			default:
				j = least | int(b&31)&^seg
				ok = j <= most
			}
			if !ok {
				j = lane
			}
			if m>>i&1 == 0 {
				continue
			}
			if m>>j&1 == 0 {
				w.fail(Uninitialised, in.line, i, "lane %d, which is read, takes no part in the shuffle", j)
				return
			}
			valid |= bit(ok) << i
			out[i] = src[j]
		}
		w.r32[in.d].blend(&out, m)
		if pair {
			w.pred[in.vec[0]] = w.pred[in.vec[0]]&^m | valid
		}
	}
	return c.def(d, t, &in.d)
}

// members checks that a lane that runs an instruction across lanes is in its
// mask, and that all lanes of the mask run it.
func (w *warp) members(in *inst, m uint32) bool {
	for x := m; x != 0; x &= x - 1 {
		i := bits.TrailingZeros32(x)
		mask := w.r32[in.e][i]
		if mask>>i&1 == 0 {
			w.fail(Deadlock, in.line, i, "the lane is not in its own member mask %08x", mask)
			return false
		}
		if miss := mask &^ m; miss != 0 {
			w.fail(Deadlock, in.line, i, "lanes %08x of the member mask never come", miss)
			return false
		}
	}
	return true
}

func buildVote(c *compiler) error {
	if !c.take("sync") {
		return c.fail("only vote.sync is supported")
	}
	t, err := c.takeType()
	if err != nil {
		return err
	}
	mode := c.takeOf("all", "any", "uni", "ballot")
	if mode == "" || (mode == "ballot") != (t == types["b32"]) || mode != "ballot" && t.kind != 'p' {
		return c.fail("the mode is not supported")
	}
	if err := c.args(3); err != nil {
		return err
	}
	in := c.n.in
	in.class, c.n.sync = Sync, true
	o, invert := c.st.args[1], uint32(0)
	if o.kind == opNotReg {
		o.kind, invert = opReg, full
	}
	if err := c.use(o, types["pred"], &in.a); err != nil {
		return err
	}
	if err := c.use(c.st.args[2], types["b32"], &in.e); err != nil {
		return err
	}
	in.run = func(w *warp, in *inst, m uint32) {
		if !w.members(in, m) {
			return
		}
		p := (w.pred[in.a] ^ invert) & m
		if mode == "ballot" {
			d := &w.r32[in.d]
			for i := range d {
				if m>>i&1 != 0 {
					d[i] = p & w.r32[in.e][i]
				}
			}
			return
		}
		yes := mode == "all" && p == m || mode == "any" && p != 0 || mode == "uni" && (p == m || p == 0)
		w.pred[in.d] = w.pred[in.d]&^m | m*bit(yes)
	}
	return c.def(c.st.args[0], t, &in.d)
}

func buildActivemask(c *compiler) error {
	if t, err := c.takeType(); err != nil || t != types["b32"] {
		return c.fail("only .b32 is supported")
	}
	if err := c.args(1); err != nil {
		return err
	}
	c.n.in.class = Sync
	c.n.in.run = func(w *warp, in *inst, m uint32) {
		d := &w.r32[in.d]
		for i := range d {
			if m>>i&1 != 0 {
				d[i] = m
			}
		}
	}
	return c.def(c.st.args[0], types["b32"], &c.n.in.d)
}

// buildBar builds bar.sync and bar.warp.sync.
func buildBar(c *compiler) error {
	in := c.n.in
	in.class = Sync
	if !c.take("sync") {
		return c.fail("only .sync is supported")
	}
	if c.take("warp") {
		c.n.sync = true
		if err := c.args(1); err != nil {
			return err
		}
		in.run = func(w *warp, in *inst, m uint32) {
			if w.members(in, m) {
				w.b.clock++
				w.epoch = w.b.clock
			}
		}
		return c.use(c.st.args[0], types["b32"], &in.e)
	}
	c.take("aligned")
	c.take("cta")
	if err := c.args(1); err != nil {
		return err
	}
	o := c.st.args[0]
	if o.kind != opImm || o.fl != 0 || o.imm > 15 {
		return c.fail("the barrier must be a number up to 15")
	}
	if c.st.guard != nil {
		return c.fail("a barrier with a guard is not supported")
	}
	c.n.ends, c.n.end, c.n.barrier, c.n.sync = true, waits, int32(o.imm), true
	return nil
}

// buildFence builds membar and fence, which the emulator keeps anyway.
func buildFence(c *compiler) error {
	c.mods = nil
	c.n.in.class = Sync
	c.n.in.run = func(*warp, *inst, uint32) {}
	return c.args(0)
}

func buildPrefetch(c *compiler) error {
	c.mods = nil
	c.n.in.run = func(*warp, *inst, uint32) {}
	return c.args(1)
}

func buildBra(c *compiler) error {
	c.take("uni")
	if err := c.args(1); err != nil {
		return err
	}
	o := c.st.args[0]
	if o.kind != opSymbol || o.v != nil {
		return c.fail("a label is wanted")
	}
	c.n.in.class = Branch
	c.n.ends, c.n.end, c.n.target = true, branches, o.name
	return nil
}

func buildRet(c *compiler) error {
	c.take("uni")
	c.n.in.class = Branch
	c.n.ends, c.n.end = true, returns
	return c.args(0)
}

// buildBrx is a jump through a table.
func buildBrx(c *compiler) error {
	if !c.take("idx") {
		return c.fail("only brx.idx is supported")
	}
	c.take("uni")
	if err := c.args(2); err != nil {
		return err
	}
	table := c.k.target[c.st.args[1].name]
	if c.st.args[1].kind != opSymbol || table == nil {
		return c.fail("%q is no list of .branchtargets", c.st.args[1].name)
	}
	if c.st.guard != nil {
		return c.fail("brx.idx with a guard is not supported")
	}
	c.n.in.class = Branch
	c.n.ends, c.n.end, c.n.targets = true, selects, table
	return c.use(c.st.args[0], types["u32"], &c.n.in.a)
}

// updates are the operations of atom and red on 32 bits; a is what memory holds.
var updates = map[string]func(t typ, a, b, x uint64) uint64{
	"add": func(t typ, a, b, _ uint64) uint64 {
		switch {
		case t == types["f32"]:
			return uint64(bits32(f32(uint32(a)) + f32(uint32(b))))
		case t.float():
			return bits64(f64(a) + f64(b))
		}
		return a + b
	},
	"min": func(t typ, a, b, _ uint64) uint64 {
		if t.signed() {
			return uint64(min(int64(widen(a, t)), int64(widen(b, t))))
		}
		return min(a, b)
	},
	"max": func(t typ, a, b, _ uint64) uint64 {
		if t.signed() {
			return uint64(max(int64(widen(a, t)), int64(widen(b, t))))
		}
		return max(a, b)
	},
	"and":  func(_ typ, a, b, _ uint64) uint64 { return a & b },
	"or":   func(_ typ, a, b, _ uint64) uint64 { return a | b },
	"xor":  func(_ typ, a, b, _ uint64) uint64 { return a ^ b },
	"exch": func(_ typ, a, b, _ uint64) uint64 { return b },
	"inc": func(_ typ, a, b, _ uint64) uint64 {
		if a >= b {
			return 0
		}
		return a + 1
	},
	"dec": func(_ typ, a, b, _ uint64) uint64 {
		if a == 0 || a > b {
			return b
		}
		return a - 1
	},
	"cas": func(_ typ, a, b, x uint64) uint64 {
		if a == b {
			return x
		}
		return a
	},
}

var updateNames = []string{"add", "min", "max", "and", "or", "xor", "exch", "inc", "dec", "cas"}

func buildAtom(c *compiler) error { return c.atomic(true) }
func buildRed(c *compiler) error  { return c.atomic(false) }

func (c *compiler) atomic(result bool) error {
	in := c.n.in
	t, err := c.takeType()
	if err != nil {
		return err
	}
	if t.bits < 32 || t.kind == 'p' {
		return c.fail("the type %v is not supported", t)
	}
	in.space = c.takeSpace()
	if in.space == local || in.space == constant || in.space == param {
		return c.fail("the space is not supported")
	}
	c.takeHints()
	name := c.takeOf(updateNames...)
	if name == "" || t.float() && name != "add" && name != "exch" {
		return c.fail("the operation is not supported for %v", t)
	}
	in.class, in.n, in.size = Atomic, 1, uint8(t.bytes())
	in.id = int32(c.p.caches)
	c.p.caches++
	if in.space != global {
		c.grain = min(c.grain, 2)
	}
	args := c.st.args
	if result {
		if len(args) < 1 {
			return c.args(3)
		}
		if err := c.def(args[0], t, &in.d); err != nil {
			return err
		}
		args = args[1:]
	}
	n := 2
	if name == "cas" {
		n = 3
	}
	if len(args) != n {
		return c.fail("%d operands are wanted", n)
	}
	if err := c.place(args[0]); err != nil {
		return err
	}
	if err := c.use(args[1], t, &in.b); err != nil {
		return err
	}
	if n == 3 {
		if err := c.use(args[2], t, &in.c); err != nil {
			return err
		}
	}
	op := updates[name]
	in.run = func(w *warp, in *inst, m uint32) {
		w.addresses(in)
		at := func(w *warp, in *inst, m uint32) { w.update(in, m, t, op, result, false) }
		on := func(w *warp, in *inst, m uint32) { w.update(in, m, t, op, result, true) }
		switch in.space {
		case global:
			at(w, in, m)
		case shared:
			on(w, in, m)
		default:
			w.bySpace(in, m, at, on, at)
		}
	}
	return nil
}

// update runs an atomic operation, lane after lane.
func (w *warp) update(in *inst, m uint32, t typ, op func(t typ, a, b, x uint64) uint64, result, inShared bool) {
	bytes := t.bytes()
	if !w.aligned(in, m, uint64(bytes)) {
		return
	}
	if !inShared {
		w.b.count.sectors(w, m, bytes, &w.b.count.WriteSectors)
		w.b.shares.atomics.Lock()
		defer w.b.shares.atomics.Unlock()
	}
	var read v64
	for x := m; x != 0; x &= x - 1 {
		i := bits.TrailingZeros32(x)
		var b []byte
		if inShared {
			off, ok := w.sharedSpan(in, i, bytes)
			if !ok {
				return
			}
			for u := off >> w.b.p.grain; u <= (off+bytes-1)>>w.b.p.grain; u++ {
				if w.b.watch[u].wrote < w.b.born {
					w.fail(Uninitialised, in.line, i, "shared memory at %#x", off)
					return
				}
			}
			b = w.b.shared[off : off+bytes]
		} else {
			a, off := w.locate(in, i, bytes)
			switch {
			case a == nil:
				return
			case a.readonly:
				w.fail(ReadOnly, in.line, i, "%s", a)
				return
			case !allSet(a.set[off : off+bytes]):
				w.fail(Uninitialised, in.line, i, "byte %d of %s", off, a)
				return
			}
			b = a.data[off : off+bytes]
		}
		if bytes == 8 {
			read[i] = le.Uint64(b)
			le.PutUint64(b, op(t, read[i], w.r64[in.b][i], w.r64[in.c][i]))
		} else {
			read[i] = uint64(le.Uint32(b))
			le.PutUint32(b, uint32(op(t, read[i], uint64(w.r32[in.b][i]), uint64(w.r32[in.c][i]))))
		}
	}
	if !result {
		return
	}
	if bytes == 8 {
		w.r64[in.d].blend(&read, m)
		return
	}
	var r v32
	for i := range r {
		r[i] = uint32(read[i])
	}
	w.r32[in.d].blend(&r, m)
}

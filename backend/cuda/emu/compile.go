package emu

import (
	"math/bits"
	"slices"
	"strings"
)

// file is a register file.
type file uint8

const (
	f32file file = iota
	f64file
	predfile
)

func fileOf(t typ) file {
	switch {
	case t.kind == 'p':
		return predfile
	case t.bits == 64:
		return f64file
	}
	return f32file
}

// ref is one mention of a virtual register in an instruction.
type ref struct {
	v *virtual
	p *int32
}

// virtual is a register before slots are given.
type virtual struct {
	file       file
	fixed      *fixed
	slot       int32
	first, end int // positions between which it lives
	index      int
}

// node is an instruction while it is compiled.
type node struct {
	in         *inst
	uses, defs []ref
	end        ending
	ends       bool
	target     string
	targets    []string
	barrier    int32
	sync       bool // must begin a block
}

type compiler struct {
	m        *module
	k        *kernel
	p        *program
	st       *stmt
	n        *node
	mods     []string
	virtuals []*virtual
	byReg    []*virtual
	byFixed  map[fixed]*virtual
	grain    int
}

func (c *compiler) fail(format string, args ...any) error {
	return syntax(c.st.line, c.st.op+": "+format, args...)
}

// compile makes a kernel ready. The addresses of the module's variables are set.
func compile(m *module, k *kernel) (*program, error) {
	c := &compiler{m: m, k: k, byFixed: map[fixed]*virtual{}, byReg: make([]*virtual, len(k.regs)), grain: 2}
	c.p = &program{name: k.name, src: m, psize: k.psize, params: k.params, maxThreads: k.maxThr}
	if c.p.maxThreads == 0 || c.p.maxThreads > 1024 {
		c.p.maxThreads = 1024
	}
	if err := c.layout(); err != nil {
		return nil, err
	}
	// Leaders of blocks.
	lead := make([]bool, len(k.body)+1)
	for _, i := range k.labels {
		lead[i] = true
	}
	nodes := make([]*node, len(k.body))
	for i := range k.body {
		c.st = &k.body[i]
		n, err := c.statement()
		if err != nil {
			return nil, err
		}
		nodes[i] = n
		if n.ends {
			lead[i+1] = true
		}
		if n.sync {
			lead[i] = true
		}
	}
	lead[0] = true
	blockOf := make([]int32, len(k.body)+1)
	nb := int32(-1)
	for i := range lead {
		if lead[i] || i == len(k.body) {
			nb++
		}
		blockOf[i] = nb
	}
	// The last block is the end of the text, which returns.
	groups := make([][]*node, nb+1)
	for i, n := range nodes {
		groups[blockOf[i]] = append(groups[blockOf[i]], n)
	}
	c.p.blocks = make([]block, nb+1)
	label := func(n *node, name string) (int32, error) {
		i, ok := k.labels[name]
		if !ok {
			return 0, syntax(int(n.in.line), "label %s is not defined in kernel %s", name, k.name)
		}
		return blockOf[i], nil
	}
	for i := range c.p.blocks {
		b := &c.p.blocks[i]
		b.guard = -1
		if i == int(nb) {
			b.end = returns
			b.line = int32(k.line)
			continue
		}
		g := groups[i]
		if len(g) == 0 {
			continue
		}
		if b.from = g[0].in.line; !g[len(g)-1].ends {
			continue
		}
		n := g[len(g)-1]
		b.end, b.line, b.barrier = n.end, n.in.line, n.barrier
		var err error
		if n.end == branches {
			if b.target, err = label(n, n.target); err != nil {
				return nil, err
			}
		}
		for _, name := range n.targets {
			t, err := label(n, name)
			if err != nil {
				return nil, err
			}
			b.targets = append(b.targets, t)
		}
	}
	c.allocate(groups)
	for i, g := range groups {
		b := &c.p.blocks[i]
		for _, n := range g {
			b.count[n.in.class]++
			if n.ends {
				b.guard, b.not, b.slot = n.in.guard, n.in.not, n.in.a
				continue
			}
			b.sync = b.sync || n.sync
			b.code = append(b.code, *n.in)
		}
	}
	return c.p, nil
}

// layout places the kernel's shared and local variables, dynamic ones last.
func (c *compiler) layout() error {
	off, loc := 0, 0
	place := func(v *variable, end *int) error {
		*end = (*end + v.align - 1) &^ (v.align - 1)
		v.off = *end
		if v.size > mostBytes-*end {
			return syntax(v.line, "the variables of kernel %s take more than %d bytes", c.k.name, mostBytes)
		}
		*end += v.size
		return nil
	}
	var open []*variable
	for _, v := range slices.Concat(c.m.vars, c.k.vars) {
		var err error
		switch {
		case v.space == shared && v.size == 0:
			open = append(open, v)
		case v.space == shared:
			err = place(v, &off)
		case v.space == local:
			err = place(v, &loc)
		}
		if err != nil {
			return err
		}
	}
	for _, v := range open {
		off = (off + v.align - 1) &^ (v.align - 1)
	}
	for _, v := range open {
		v.off = off
	}
	c.p.shared, c.p.local = off, loc
	return nil
}

// virtualOf is the virtual register of a named one.
func (c *compiler) virtualOf(r *register) *virtual {
	if c.byReg[r.id] == nil {
		c.byReg[r.id] = c.fresh(fileOf(r.t))
	}
	return c.byReg[r.id]
}

func (c *compiler) fresh(f file) *virtual {
	v := &virtual{file: f, index: len(c.virtuals), first: -1}
	c.virtuals = append(c.virtuals, v)
	return v
}

// fixedOf is the register of a value that does not change.
func (c *compiler) fixedOf(x fixed) *virtual {
	if v := c.byFixed[x]; v != nil {
		return v
	}
	f := f32file
	switch {
	case x.pred:
		f = predfile
	case x.wide:
		f = f64file
	}
	v := c.fresh(f)
	v.fixed = &x
	c.byFixed[x] = v
	return v
}

func (c *compiler) constant(bits uint64, wide bool) *virtual {
	return c.fixedOf(fixed{kind: isConst, val: bits, wide: wide})
}

func (c *compiler) addUse(v *virtual, p *int32) { c.n.uses = append(c.n.uses, ref{v, p}) }

// use makes *p the slot of a source operand of type t.
func (c *compiler) use(o operand, t typ, p *int32) error {
	return c.useWide(o, t, p, false)
}

// useWide also takes registers wider than t, as ld, st and cvt allow.
func (c *compiler) useWide(o operand, t typ, p *int32, wider bool) error {
	switch o.kind {
	case opReg:
		switch {
		case (o.reg.t.kind == 'p') != (t.kind == 'p'),
			o.reg.t.bits < t.bits, o.reg.t.bits > t.bits && !wider:
			return c.fail("%s is %v where %v is wanted", o.reg.name, o.reg.t, t)
		}
		c.addUse(c.virtualOf(o.reg), p)
		return nil
	case opImm:
		if t.kind == 'p' {
			if o.fl != 0 {
				return c.fail("a predicate is an integer")
			}
			yes := uint64(0) // compilers write -1 for true
			if o.imm != 0 {
				yes = 1
			}
			c.addUse(c.fixedOf(fixed{kind: isConst, val: yes, pred: true}), p)
			return nil
		}
		b, err := o.bits(t, c.st.line)
		if err != nil {
			return err
		}
		c.addUse(c.constant(b, t.bits == 64), p)
		return nil
	case opSpecial:
		if t.bits != 32 && !(t.bits == 16 && wider) || t.float() {
			return c.fail("%s is .u32, %v is wanted", o.name, t)
		}
		c.addUse(c.fixedOf(fixed{kind: isSpecial, name: o.name}), p)
		return nil
	case opSymbol:
		if o.v == nil {
			return c.fail("%s is not declared", o.name)
		}
		if t.bits != 64 && !(t.bits == 32 && (o.v.space == shared || o.v.space == local)) {
			return c.fail("the address of %s needs 64 bits", o.v.name)
		}
		c.addUse(c.constant(uint64(int64(c.address(o.v))+o.off), t.bits == 64), p)
		return nil
	}
	return c.fail("an operand of this kind is not supported here")
}

// address is that of a variable in its space.
func (c *compiler) address(v *variable) uint64 {
	switch v.space {
	case global, constant:
		return v.addr
	case shared:
		return sharedBase + uint64(v.off)
	}
	return uint64(v.off)
}

// def makes *p the slot of a result of type t.
func (c *compiler) def(o operand, t typ, p *int32) error { return c.defWide(o, t, p, false) }

func (c *compiler) defWide(o operand, t typ, p *int32, wider bool) error {
	switch {
	case o.kind == opSink:
		c.n.defs = append(c.n.defs, ref{c.fresh(fileOf(t)), p})
		return nil
	case o.kind != opReg:
		return c.fail("the result must be a register")
	case (o.reg.t.kind == 'p') != (t.kind == 'p'), o.reg.t.bits < t.bits, o.reg.t.bits > t.bits && !wider:
		return c.fail("%s is %v where %v is wanted", o.reg.name, o.reg.t, t)
	}
	v := c.virtualOf(o.reg)
	c.n.defs = append(c.n.defs, ref{v, p})
	if c.st.guard != nil { // lanes that the guard leaves out keep what was there
		c.n.uses = append(c.n.uses, ref{v, p})
	}
	return nil
}

// take reports whether a modifier is there and takes it off.
func (c *compiler) take(name string) bool {
	if i := slices.Index(c.mods, name); i >= 0 {
		c.mods = slices.Delete(slices.Clone(c.mods), i, i+1)
		return true
	}
	return false
}

// takeOf takes the first of several modifiers that is there.
func (c *compiler) takeOf(names ...string) string {
	for _, n := range names {
		if c.take(n) {
			return n
		}
	}
	return ""
}

// takeType takes the last modifier that is a type.
func (c *compiler) takeType() (typ, error) {
	for i := len(c.mods) - 1; i >= 0; i-- {
		if t, ok := types[c.mods[i]]; ok {
			c.mods = slices.Delete(slices.Clone(c.mods), i, i+1)
			return t, nil
		}
	}
	return typ{}, c.fail("a type is missing")
}

// args checks the number of operands.
func (c *compiler) args(n int) error {
	if len(c.st.args) != n {
		return c.fail("%d operands, not %d, are wanted", n, len(c.st.args))
	}
	return nil
}

// statement compiles one instruction.
func (c *compiler) statement() (*node, error) {
	c.n = &node{in: &inst{guard: -1, line: int32(c.st.line), class: Integer, id: -1}}
	c.mods = c.st.words[1:]
	if c.st.guard != nil {
		c.n.in.not = c.st.not
		c.addUse(c.virtualOf(c.st.guard), &c.n.in.guard)
	}
	build, ok := builders[c.st.words[0]]
	if !ok {
		return nil, c.fail("the instruction is not supported")
	}
	if err := refuse(c.st); err != nil {
		return nil, err
	}
	if needs80(c.st) && capability(c.m.target) < 80 {
		return nil, c.fail("the instruction needs .target sm_80, the module says %s", c.m.target)
	}
	if err := build(c); err != nil {
		return nil, err
	}
	if len(c.mods) > 0 {
		return nil, c.fail("the modifier .%s is not supported", c.mods[0])
	}
	if c.n.in.run == nil && !c.n.ends {
		return nil, c.fail("the type is not supported")
	}
	return c.n, nil
}

// allocate gives virtual registers slots: those that live at different times
// share one. Few slots keep a warp's registers in the processor's cache.
func (c *compiler) allocate(groups [][]*node) {
	words := (len(c.virtuals) + 63) / 64
	sets := make([]uint64, 4*words*len(groups))
	set := func(i, k int) []uint64 { return sets[(4*i+k)*words:][:words] } // 0 use, 1 def, 2 in, 3 out
	succ := make([][]int32, len(groups))
	for i, g := range groups {
		use, def := set(i, 0), set(i, 1)
		for _, n := range g {
			for _, u := range n.uses {
				if w, b := u.v.index/64, uint64(1)<<(u.v.index%64); def[w]&b == 0 {
					use[w] |= b
				}
			}
			for _, d := range n.defs {
				def[d.v.index/64] |= 1 << (d.v.index % 64)
			}
		}
		b := &c.p.blocks[i]
		always := len(g) > 0 && g[len(g)-1].ends && (b.end == branches || b.end == returns) && c.unguarded(g[len(g)-1])
		if !always && b.end != selects && i+1 < len(groups) {
			succ[i] = append(succ[i], int32(i+1))
		}
		if b.end == branches {
			succ[i] = append(succ[i], b.target)
		}
		succ[i] = append(succ[i], b.targets...)
	}
	for changed := true; changed; {
		changed = false
		for i := len(groups) - 1; i >= 0; i-- {
			use, def, in, out := set(i, 0), set(i, 1), set(i, 2), set(i, 3)
			for w := range words {
				o := out[w]
				for _, s := range succ[i] {
					o |= set(int(s), 2)[w]
				}
				n := use[w] | o&^def[w]
				if o != out[w] || n != in[w] {
					changed = true
					out[w], in[w] = o, n
				}
			}
		}
	}
	at := func(v *virtual, pos int) {
		if v.first < 0 {
			v.first, v.end = pos, pos
		}
		v.first, v.end = min(v.first, pos), max(v.end, pos)
	}
	all := func(s []uint64, pos int) {
		for w, x := range s {
			for ; x != 0; x &= x - 1 {
				at(c.virtuals[w*64+bits.TrailingZeros64(x)], pos)
			}
		}
	}
	pos := 0
	for i, g := range groups {
		all(set(i, 2), pos)
		for _, n := range g {
			for _, u := range n.uses {
				at(u.v, pos)
			}
			for _, d := range n.defs {
				at(d.v, pos+1)
			}
			pos += 2
		}
		pos += 2
		all(set(i, 3), pos-1)
	}
	// Linear scan over the intervals in order of their beginning.
	var order []*virtual
	for _, v := range c.virtuals {
		if v.fixed == nil && v.first >= 0 {
			order = append(order, v)
		}
	}
	slices.SortStableFunc(order, func(a, b *virtual) int { return a.first - b.first })
	var ends [3][]int // by file and slot: the last position in use
	for _, v := range order {
		e := &ends[v.file]
		s := slices.IndexFunc(*e, func(end int) bool { return end < v.first })
		if s < 0 {
			s = len(*e)
			*e = append(*e, 0)
		}
		(*e)[s] = v.end
		v.slot = int32(s)
	}
	size := [3]int{len(ends[0]), len(ends[1]), len(ends[2])}
	c.p.free32, c.p.free64, c.p.freePred = size[0], size[1], size[2]
	for _, v := range c.virtuals {
		if v.fixed != nil {
			v.slot = int32(size[v.file])
			size[v.file]++
			v.fixed.slot = v.slot
			c.p.fixed = append(c.p.fixed, *v.fixed)
			if strings.HasPrefix(v.fixed.name, "%ctaid") {
				c.p.blockly = append(c.p.blockly, *v.fixed)
			}
		}
	}
	c.p.n32, c.p.n64, c.p.npred = size[0], size[1], size[2]
	for _, g := range groups {
		for _, n := range g {
			for _, r := range slices.Concat(n.uses, n.defs) {
				*r.p = r.v.slot
			}
		}
	}
	c.p.grain = c.grain
}

func (c *compiler) unguarded(n *node) bool {
	for _, u := range n.uses {
		if u.p == &n.in.guard {
			return false
		}
	}
	return true
}

func trim(s string) string {
	s, _, _ = strings.Cut(s, "//")
	return strings.Join(strings.Fields(s), " ")
}

package checkpoint

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"unicode/utf8"
)

const (
	ggufMagic    = "GGUF"
	alignKey     = "general.alignment"
	defaultAlign = 32
	minAlign     = 8 // so that every plain element type is aligned
	maxAlign     = 1 << 16
	maxKey       = 1<<16 - 1 // bytes, by the format's specification
	maxGGUFRank  = 4

	// The smallest key/value pair: length, one byte of key, type, one byte.
	minPair = 8 + 1 + 4 + 1
	// The smallest tensor info: length, one byte of name, rank, one dimension, type, offset.
	minTensor = 8 + 1 + 4 + 8 + 4 + 8
)

// parseGGUF checks the whole header of a GGUF file with bytes b (models.md 5).
// Array values of the metadata stay views of b.
func parseGGUF(file string, b []byte) (*contents, error) {
	p := ggufParser{file: file, b: b}
	tensors, pairs, err := p.start()
	if err != nil {
		return nil, err
	}
	c := &contents{meta: Meta{file: file, kv: make(map[string]value)}}
	for i := range pairs {
		if err := p.pair(&c.meta); err != nil {
			return nil, corrupt(file, "key/value pair %d of %d: %v", i+1, pairs, err)
		}
	}
	align, err := p.alignment(c.meta)
	if err != nil {
		return nil, err
	}
	seen := make(map[string]bool)
	for i := range tensors {
		r, err := p.tensor(seen, align)
		if err != nil {
			return nil, corrupt(file, "tensor %d of %d: %v", i+1, tensors, err)
		}
		c.records = append(c.records, r)
	}
	if err := p.layout(c.records, align); err != nil {
		return nil, err
	}
	if c.meta.Has("split.count") {
		if n, err := c.meta.Int("split.count"); err != nil || n > 1 {
			return nil, unsupported(file, "it is one of %d parts of a split GGUF: join them with llama-gguf-split --merge", n)
		}
	}
	return c, nil
}

// ggufParser takes fields from the front of the file; each read fails when the
// file is shorter.
type ggufParser struct {
	file string
	b    []byte
	pos  int
}

func (p *ggufParser) left() int { return len(p.b) - p.pos }

func (p *ggufParser) take(n uint64, what string) ([]byte, error) {
	if n > uint64(p.left()) {
		return nil, fmt.Errorf("%s at byte %d needs %d bytes, the file ends after %d", what, p.pos, n, p.left())
	}
	v := p.b[p.pos : p.pos+int(n) : p.pos+int(n)]
	p.pos += int(n)
	return v, nil
}

func (p *ggufParser) u32(what string) (uint32, error) {
	v, err := p.take(4, what)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(v), nil
}

func (p *ggufParser) u64(what string) (uint64, error) {
	v, err := p.take(8, what)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(v), nil
}

// name takes a string that names a key or a tensor.
func (p *ggufParser) name(what string, limit uint64) (string, error) {
	n, err := p.u64("length of the " + what)
	if err != nil {
		return "", err
	}
	if n == 0 || n > limit {
		return "", fmt.Errorf("%s at byte %d has %d bytes, 1 to %d are allowed", what, p.pos, n, limit)
	}
	v, err := p.take(n, what)
	if err != nil {
		return "", err
	}
	if !utf8.Valid(v) {
		return "", fmt.Errorf("%s %q is not valid UTF-8", what, clip(string(v)))
	}
	return string(v), nil
}

// start reads magic, version and the two counts.
func (p *ggufParser) start() (tensors, pairs uint64, err error) {
	if len(p.b) < 24 || string(p.b[:4]) != ggufMagic {
		return 0, 0, corrupt(p.file, "file has %d bytes; a GGUF file begins with %q and has at least 24", len(p.b), ggufMagic)
	}
	version := binary.LittleEndian.Uint32(p.b[4:])
	switch {
	case version == 1:
		return 0, 0, unsupported(p.file, "GGUF version 1: convert it again with a current converter")
	case version != 0 && version&0xffff == 0:
		return 0, 0, unsupported(p.file, "big-endian GGUF (version field %#08x): convert it with gguf_convert_endian.py", version)
	case version != 2 && version != 3:
		return 0, 0, unsupported(p.file, "GGUF version %d, versions 2 and 3 are read", version)
	}
	tensors, pairs = binary.LittleEndian.Uint64(p.b[8:]), binary.LittleEndian.Uint64(p.b[16:])
	p.pos = 24
	if pairs > uint64(p.left())/minPair {
		return 0, 0, corrupt(p.file, "file has %d bytes, too few for %d key/value pairs", len(p.b), pairs)
	}
	if tensors > uint64(p.left())/minTensor {
		return 0, 0, corrupt(p.file, "file has %d bytes, too few for %d tensors", len(p.b), tensors)
	}
	return tensors, pairs, nil
}

// pair reads one key and its value into m.
func (p *ggufParser) pair(m *Meta) error {
	key, err := p.name("key", maxKey)
	if err != nil {
		return err
	}
	if _, ok := m.kv[key]; ok {
		return fmt.Errorf("duplicate key %q", clip(key))
	}
	kind, err := p.u32("value type")
	if err != nil {
		return fmt.Errorf("key %q: %v", clip(key), err)
	}
	v := value{kind: kind, n: 1}
	if kind == kindArray {
		if v.elem, err = p.u32("element type"); err == nil {
			v.n, err = p.u64("element count")
		}
		kind = v.elem
	}
	if err == nil {
		v.raw, err = p.values(kind, v.n)
	}
	if err != nil {
		return fmt.Errorf("key %q: %v", clip(key), err)
	}
	m.kv[key] = v
	m.keys = append(m.keys, key)
	return nil
}

// values takes n consecutive values of one kind.
func (p *ggufParser) values(kind uint32, n uint64) ([]byte, error) {
	if kind == kindArray {
		return nil, fmt.Errorf("array of arrays")
	}
	if kind >= kindCount {
		return nil, fmt.Errorf("unknown value type %d", kind)
	}
	if kind == kindString {
		return p.strings(n)
	}
	hi, size := bits.Mul64(n, uint64(kinds[kind].bytes))
	if hi != 0 {
		return nil, fmt.Errorf("%d values of %s overflow", n, kinds[kind].name)
	}
	raw, err := p.take(size, "value")
	if err == nil && kind == kindBool {
		for _, c := range raw {
			if c > 1 {
				return nil, fmt.Errorf("bool with the value %d", c)
			}
		}
	}
	return raw, err
}

// strings takes n strings, lengths included.
func (p *ggufParser) strings(n uint64) ([]byte, error) {
	if n > uint64(p.left())/8 {
		return nil, fmt.Errorf("file has %d bytes left, too few for %d strings", p.left(), n)
	}
	start := p.pos
	for range n {
		size, err := p.u64("string length")
		if err != nil {
			return nil, err
		}
		if _, err := p.take(size, "string"); err != nil {
			return nil, err
		}
	}
	return p.b[start:p.pos:p.pos], nil
}

func (p *ggufParser) alignment(m Meta) (uint64, error) {
	v, ok := m.kv[alignKey]
	if !ok {
		return defaultAlign, nil
	}
	if v.kind != kindU32 {
		return 0, corrupt(p.file, "%s has type %s, u32 is required", alignKey, v)
	}
	a := binary.LittleEndian.Uint32(v.raw)
	if a < minAlign || a > maxAlign || a&(a-1) != 0 {
		return 0, corrupt(p.file, "%s is %d, a power of two from %d to %d is required", alignKey, a, minAlign, maxAlign)
	}
	return uint64(a), nil
}

// tensor reads one tensor info. The record's Offset still counts from the start
// of the data, whose place is known only after the last info; layout moves it.
func (p *ggufParser) tensor(seen map[string]bool, align uint64) (r record, err error) {
	name, err := p.name("tensor name", maxName)
	if err != nil {
		return r, err
	}
	fail := func(format string, args ...any) (record, error) {
		return record{}, fmt.Errorf("%q: %s", clip(name), fmt.Sprintf(format, args...))
	}
	if seen[name] {
		return fail("duplicate tensor name")
	}
	seen[name] = true
	rank, err := p.u32("number of dimensions")
	if err != nil {
		return fail("%v", err)
	}
	if rank < 1 || rank > maxGGUFRank {
		return fail("%d dimensions, 1 to %d are allowed", rank, maxGGUFRank)
	}
	var store [maxGGUFRank]uint64
	dims := store[:rank]
	for i := range dims {
		if dims[i], err = p.u64("dimension"); err != nil {
			return fail("%v", err)
		}
		if dims[i] == 0 || dims[i] > math.MaxInt {
			return fail("dimension %d is %d, it must not be zero or overflow an int", i, dims[i])
		}
	}
	id, err := p.u32("type")
	if err != nil {
		return fail("%v", err)
	}
	offset, err := p.u64("offset")
	if err != nil {
		return fail("%v", err)
	}
	t := byID(id)
	if t == Invalid {
		return fail("unknown type %d", id)
	}
	if values, _ := t.Block(); dims[0]%uint64(values) != 0 {
		return fail("rows of %d values, %v stores blocks of %d", dims[0], t, values)
	}
	elems, ok := mulDims(dims)
	if !ok || elems > math.MaxInt {
		return fail("dimensions %v overflow", dims)
	}
	size, ok := t.size(elems)
	if !ok {
		return fail("dimensions %v of %v overflow", dims, t)
	}
	if offset%align != 0 {
		return fail("offset %d is no multiple of the alignment %d", offset, align)
	}
	if room := uint64(len(p.b)); size > room || offset > room-size {
		return fail("%d bytes at offset %d, the file has %d in all", size, offset, room)
	}
	shape := make([]int, rank) // the file has the fastest axis first
	for i, d := range dims {
		shape[int(rank)-1-i] = int(d)
	}
	return record{Info: Info{
		Name: name, Type: t, Shape: shape, File: p.file, Offset: int64(offset), Bytes: int64(size),
	}}, nil
}

// layout puts the records in data order, demands that they lie in the file
// without overlap, and makes their offsets count from the start of the file.
// Gaps are allowed: alignment makes them, and tools that drop a tensor.
func (p *ggufParser) layout(records []record, align uint64) error {
	start := (uint64(p.pos) + align - 1) &^ (align - 1)
	if len(records) == 0 {
		return nil
	}
	if start > uint64(len(p.b)) {
		return corrupt(p.file, "file has %d bytes, its data begins at %d", len(p.b), start)
	}
	data := int64(uint64(len(p.b)) - start)
	slices.SortStableFunc(records, func(a, b record) int { return cmp.Compare(a.Offset, b.Offset) })
	for i := range records {
		r := &records[i]
		if r.Bytes > data || r.Offset > data-r.Bytes {
			return corrupt(p.file, "tensor %q: %d bytes at offset %d, the file holds %d bytes of data", clip(r.Name), r.Bytes, r.Offset, data)
		}
		if i > 0 {
			before := &records[i-1]
			if end := before.Offset - int64(start) + before.Bytes; r.Offset < end {
				return corrupt(p.file, "tensor %q begins at offset %d, inside %q, which ends at %d", clip(r.Name), r.Offset, clip(before.Name), end)
			}
		}
		r.Offset += int64(start)
	}
	return nil
}

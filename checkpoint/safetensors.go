package checkpoint

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
)

const (
	maxHeader = 100_000_000 // bytes; the limit of the reference implementation
	maxRank   = 16
)

// record is a tensor of an opened set.
type record struct {
	Info
	file int // index into Set.files
}

// contents is what a file's header says, checked against the file.
type contents struct {
	records  []record // in data order
	metadata map[string]string
	meta     Meta
}

// parseSafetensors checks the whole header of a safetensors file with bytes b:
// an 8-byte little-endian length, that many bytes of JSON, the data. See
// models.md 4 and the format's reference implementation, whose rules these are,
// with unique names and known fields demanded on top.
func parseSafetensors(file string, b []byte) (*contents, error) {
	if len(b) < 8 {
		return nil, corrupt(file, "file has %d bytes, a safetensors file begins with an 8-byte header length", len(b))
	}
	n := binary.LittleEndian.Uint64(b)
	if n > uint64(len(b)-8) {
		return nil, corrupt(file, "file has %d bytes, its header length says %d", len(b), n)
	}
	if n > maxHeader {
		return nil, corrupt(file, "header length %d, at most %d are allowed", n, maxHeader)
	}
	s := &scanner{b: b[8 : 8+n]}
	if n == 0 || s.b[0] != '{' {
		return nil, corrupt(file, "header does not begin with '{': not a safetensors file")
	}
	p := stParser{file: file, scanner: s, data: uint64(len(b)) - 8 - n, seen: make(map[string]bool)}
	if err := p.header(); err != nil {
		return nil, err
	}
	if err := p.layout(int64(8 + n)); err != nil {
		return nil, err
	}
	// Last, so that a broken file costs no copy of its metadata.
	metadata, err := p.metadata()
	if err != nil {
		return nil, err
	}
	return &contents{records: p.records, metadata: metadata}, nil
}

type stParser struct {
	*scanner
	file    string
	data    uint64 // bytes after the header
	seen    map[string]bool
	records []record
	metaPos int // where the value of __metadata__ begins, 0 when absent
}

func (p *stParser) header() error {
	err := p.object(func(name string) error {
		if p.seen[name] {
			return p.errorf("duplicate key %q", clip(name))
		}
		p.seen[name] = true
		switch name {
		case "":
			return p.errorf("tensor with an empty name")
		case "__metadata__":
			p.next()
			p.metaPos = p.pos
			return p.skip(0)
		}
		return p.tensor(name)
	})
	if err == nil {
		err = p.end()
	}
	if err != nil {
		return corrupt(p.file, "header: %v", err)
	}
	return nil
}

// tensor reads {"dtype": ..., "shape": [...], "data_offsets": [begin, end]}.
func (p *stParser) tensor(name string) error {
	var (
		dtype      string
		shape      []int
		begin, end uint64
		have       [3]bool
	)
	once := func(i int, key string) error {
		if have[i] {
			return p.errorf("tensor %q: duplicate key %q", clip(name), key)
		}
		have[i] = true
		return nil
	}
	err := p.object(func(key string) (err error) {
		switch key {
		case "dtype":
			if err := once(0, key); err != nil {
				return err
			}
			dtype, err = p.str(64)
		case "shape":
			if err := once(1, key); err != nil {
				return err
			}
			shape, err = p.shape()
		case "data_offsets":
			if err := once(2, key); err != nil {
				return err
			}
			begin, end, err = p.pair()
		default:
			err = p.errorf("tensor %q: unknown field %q", clip(name), clip(key))
		}
		return err
	})
	if err != nil {
		return err
	}
	for i, key := range []string{"dtype", "shape", "data_offsets"} {
		if !have[i] {
			return p.errorf("tensor %q has no %q", clip(name), key)
		}
	}
	t := byName(dtype)
	if t == Invalid {
		return p.errorf("tensor %q: unknown dtype %q", clip(name), dtype)
	}
	elems, ok := mulDims(shape)
	if !ok {
		return p.errorf("tensor %q: shape %v overflows", clip(name), shape)
	}
	want, ok := t.size(elems)
	if !ok {
		return p.errorf("tensor %q: shape %v cannot be stored as %v", clip(name), shape, t)
	}
	if begin > end || end > p.data {
		return p.errorf("tensor %q: data_offsets [%d, %d] do not lie in the %d bytes of data that the file holds", clip(name), begin, end, p.data)
	}
	if end-begin != want {
		return p.errorf("tensor %q: data_offsets [%d, %d] hold %d bytes, shape %v of %v needs %d", clip(name), begin, end, end-begin, shape, t, want)
	}
	p.records = append(p.records, record{Info: Info{
		Name: name, Type: t, Shape: shape, File: p.file, Offset: int64(begin), Bytes: int64(want),
	}})
	return nil
}

func (p *stParser) shape() ([]int, error) {
	var dims [maxRank]int
	n := 0
	err := p.array(func() error {
		d, err := p.uint()
		switch {
		case err != nil:
			return err
		case d > math.MaxInt:
			return p.errorf("dimension %d is too large, it overflows an int", d)
		case n == maxRank:
			return p.errorf("more than %d dimensions", maxRank)
		}
		dims[n] = int(d)
		n++
		return nil
	})
	return slices.Clone(dims[:n]), err
}

func (p *stParser) pair() (begin, end uint64, err error) {
	var v [2]uint64
	n := 0
	err = p.array(func() error {
		if n == 2 {
			return p.errorf("data_offsets holds more than two numbers")
		}
		u, err := p.uint()
		v[n] = u
		n++
		return err
	})
	if err == nil && n != 2 {
		err = p.errorf("data_offsets holds %d numbers, not two", n)
	}
	return v[0], v[1], err
}

// layout puts the records in data order and demands that they cover the data
// exactly: no overlap, no hole, nothing behind. It turns offsets within the data
// into offsets within the file.
func (p *stParser) layout(start int64) error {
	slices.SortFunc(p.records, func(a, b record) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Bytes, b.Bytes), cmp.Compare(a.Name, b.Name))
	})
	at, before := int64(0), "the start of the data"
	for i := range p.records {
		r := &p.records[i]
		switch {
		case r.Offset < at:
			return corrupt(p.file, "tensor %q begins at byte %d of the data, inside %q, which ends at %d", clip(r.Name), r.Offset, before, at)
		case r.Offset > at:
			return corrupt(p.file, "hole of %d bytes between %q and tensor %q at byte %d of the data", r.Offset-at, before, clip(r.Name), r.Offset)
		}
		at, before = at+r.Bytes, clip(r.Name)
		r.Offset += start
	}
	if uint64(at) != p.data {
		return corrupt(p.file, "%d bytes of data belong to no tensor: the file holds %d, the tensors end at %d", p.data-uint64(at), p.data, at)
	}
	return nil
}

func (p *stParser) metadata() (map[string]string, error) {
	if p.metaPos == 0 {
		return nil, nil
	}
	out := make(map[string]string)
	p.pos = p.metaPos
	err := p.object(func(key string) error {
		if _, ok := out[key]; ok {
			return p.errorf("__metadata__: duplicate key %q", clip(key))
		}
		v, err := p.str(maxHeader)
		out[key] = v
		return err
	})
	if err != nil {
		return nil, corrupt(p.file, "header: %v", err)
	}
	return out, nil
}

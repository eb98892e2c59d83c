package lockstep

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"samebit/backend"
	"samebit/tensor"
)

// stream runs ops on both streams and compares what they wrote.
type stream struct {
	dev  *Device
	a, b backend.Stream
	err  error
	plan plan

	op       string // under way
	number   int64
	operands []tensor.Tensor

	x, y     []byte  // what the two wrote
	mem      *buffer // to gather strided outputs and pages
	memBytes int
}

// plan is a plan of each stream.
type plan struct {
	segs []backend.Seg
	a, b backend.Plan
	kv   [2][]tensor.Tensor
	list [2][]backend.Seg
}

func (p *plan) Segs() []backend.Seg { return p.segs }
func (p *plan) Rows() int           { return p.a.Rows() }

// begin counts an op; it reports false if the stream has failed.
func (s *stream) begin(op string, operands ...tensor.Tensor) bool {
	if s.err != nil {
		return false
	}
	s.op, s.number = op, s.dev.note(op)
	s.operands = append(s.operands[:0], operands...)
	return true
}

// end waits for both and notes a failure of either.
func (s *stream) end() bool {
	ea, eb := s.a.Sync(), s.b.Sync()
	switch {
	case ea == nil && eb == nil:
		return true
	case ea != nil && eb != nil:
		s.err = ea
	case ea != nil:
		s.err = s.failure("%s fails where %s does not: %w", s.dev.a.Name(), s.dev.b.Name(), ea)
	default:
		s.err = s.failure("%s fails where %s does not: %w", s.dev.b.Name(), s.dev.a.Name(), eb)
	}
	return false
}

// failure describes the op under way.
func (s *stream) failure(format string, args ...any) error {
	var shapes []string
	for _, t := range s.operands {
		if t.Valid() {
			shapes = append(shapes, t.String())
		} else {
			shapes = append(shapes, "none")
		}
	}
	return fmt.Errorf("lockstep: op %d, %s(%s): "+format, append([]any{s.number, s.op, strings.Join(shapes, ", ")}, args...)...)
}

// same compares an output on both devices, bit by bit, all NaN equal. what names
// it where it is not simply the op's first operand.
func (s *stream) same(what string, t tensor.Tensor) bool {
	if s.err != nil || !t.Valid() || t.Len() == 0 {
		return s.err == nil
	}
	var ok bool
	if s.x, s.y, ok = s.fetch(t); !ok {
		return false
	}
	return s.compare(what, t.DType(), t.Shape(), s.x, s.y)
}

// fetch reads a tensor from both devices, without its gaps.
func (s *stream) fetch(t tensor.Tensor) (x, y []byte, ok bool) {
	n := t.DType().Bytes(t.Len())
	if !t.Contiguous() {
		d, err := s.scratch(t.DType(), t.Shape()...)
		if err != nil {
			s.err = s.failure("comparing: %w", err)
			return nil, nil, false
		}
		da, db := split(d)
		ta, tb := split(t)
		s.a.Copy(da, ta)
		s.b.Copy(db, tb)
		t = d
	}
	if cap(s.x) < n {
		s.x, s.y = make([]byte, n), make([]byte, n)
	}
	x, y = s.x[:n], s.y[:n]
	ta, tb := split(t)
	s.a.Read(x, ta)
	s.b.Read(y, tb)
	return x, y, s.end()
}

// scratch is memory of both devices that lasts until the next call.
func (s *stream) scratch(dt tensor.DType, dim ...int) (tensor.Tensor, error) {
	n := dt.BlockBytes()
	for _, d := range dim {
		n *= d
	}
	if s.memBytes < n {
		if s.mem != nil {
			s.dev.Free(s.mem)
			s.mem, s.memBytes = nil, 0
		}
		m, err := s.dev.Alloc(n)
		if err != nil {
			return tensor.Tensor{}, err
		}
		s.mem, s.memBytes = m.(*buffer), n
	}
	return tensor.New(s.mem, 0, dt, dim...)
}

// compare finds the first place where x and y, the values of a tensor, differ.
func (s *stream) compare(what string, dt tensor.DType, dim []int, x, y []byte) bool {
	size := dt.BlockBytes()
	values := len(x) / size
	if bytes.Equal(x, y) {
		s.dev.compared(s.op, values, 0)
		return true
	}
	first, differing := -1, 0
	for i := range values {
		u, v := x[i*size:(i+1)*size], y[i*size:(i+1)*size]
		if !bytes.Equal(u, v) && !(dt == tensor.F32 && nan(u) && nan(v)) {
			if differing++; first < 0 {
				first = i
			}
		}
	}
	s.dev.compared(s.op, values, differing)
	if differing == 0 {
		return true
	}
	s.err = s.failure("%s differs at %s in %d of %d values: %s has %s, %s has %s", what, place(dim, first), differing, values,
		s.dev.a.Name(), value(dt, x[first*size:]), s.dev.b.Name(), value(dt, y[first*size:]))
	return false
}

func word(b []byte) uint32 { return binary.NativeEndian.Uint32(b) }

func nan(b []byte) bool {
	f := math.Float32frombits(word(b))
	return f != f
}

func value(dt tensor.DType, b []byte) string {
	switch dt {
	case tensor.F32:
		return fmt.Sprintf("%08x (%v)", word(b), math.Float32frombits(word(b)))
	case tensor.I32:
		return fmt.Sprint(int32(word(b)))
	}
	return fmt.Sprintf("%x", b[:dt.BlockBytes()])
}

// place says where the i-th value of a tensor lies.
func place(dim []int, i int) string {
	at := make([]int, len(dim))
	for k := len(at) - 1; k >= 0; k-- {
		at[k], i = i%dim[k], i/dim[k]
	}
	switch len(at) {
	case 1:
		return fmt.Sprintf("index %d", at[0])
	case 2:
		return fmt.Sprintf("row %d, index %d", at[0], at[1])
	case 3:
		return fmt.Sprintf("row %d, head %d, index %d", at[0], at[1], at[2])
	}
	return fmt.Sprintf("plane %d, head %d, row %d, index %d", at[0], at[1], at[2], at[3])
}

// writable fails the stream if an output lies in memory that both would write.
func (s *stream) writable(ts ...tensor.Tensor) bool {
	for _, t := range ts {
		buf, _ := t.Buffer()
		if _, ok := buf.(*buffer); buf != nil && !ok {
			s.err = s.failure("the output %v was not allocated by this device", t)
			return false
		}
	}
	return true
}

// plans are the plans of both streams; a plan of another stream goes to both, so
// that they refuse it.
func (s *stream) plans(p backend.Plan) (a, b backend.Plan) {
	if q, ok := p.(*plan); ok && q != nil {
		return q.a, q.b
	}
	return p, p
}

func (s *stream) Plan(segs []backend.Seg) backend.Plan {
	p := &s.plan
	for i := range p.list {
		p.list[i], p.kv[i] = p.list[i][:0], p.kv[i][:0]
	}
	p.segs = p.segs[:0]
	ok := s.begin("Plan")
	for i := range segs {
		g := segs[i]
		a, b := g, g
		a.DeltaIn, b.DeltaIn = split(g.DeltaIn)
		a.DeltaOut, b.DeltaOut = split(g.DeltaOut)
		a.ConvIn, b.ConvIn = split(g.ConvIn)
		a.ConvOut, b.ConvOut = split(g.ConvOut)
		a.SumIn, b.SumIn = split(g.SumIn)
		a.SumOut, b.SumOut = split(g.SumOut)
		a.Archive, b.Archive = splitArchive(g.Archive)
		a.KV, b.KV = make([]tensor.Tensor, len(g.KV)), make([]tensor.Tensor, len(g.KV))
		for j, pg := range g.KV {
			a.KV[j], b.KV[j] = split(pg)
		}
		p.list[0], p.list[1] = append(p.list[0], a), append(p.list[1], b)
	}
	p.a, p.b = s.a.Plan(p.list[0]), s.b.Plan(p.list[1])
	if ok && s.end() {
		p.segs = append(p.segs, segs...)
	}
	return p
}

// Read gives the bytes of the first device after comparing them.
func (s *stream) Read(dst []byte, src tensor.Tensor) {
	if !s.begin("Read", src) {
		return
	}
	other := make([]byte, len(dst))
	a, b := split(src)
	s.a.Read(dst, a)
	s.b.Read(other, b)
	if s.end() {
		s.compare("what is read", src.DType(), src.Shape(), dst, other)
	}
}

func (s *stream) Write(dst tensor.Tensor, src []byte) {
	if !s.begin("Write", dst) || !s.writable(dst) {
		return
	}
	a, b := split(dst)
	s.a.Write(a, src)
	s.b.Write(b, src)
	s.end()
}

func (s *stream) Err() error  { return s.err }
func (s *stream) Sync() error { return s.err } // every op has waited

func (s *stream) Reset() {
	s.a.Reset()
	s.b.Reset()
	s.err = nil
	if err := s.a.Err(); err != nil { // closed for good
		s.err = err
	}
}

func (s *stream) Close() error {
	if s.mem != nil {
		s.dev.Free(s.mem)
		s.mem, s.memBytes = nil, 0
	}
	ea, eb := s.a.Close(), s.b.Close()
	s.err = fmt.Errorf("lockstep: stream %w", backend.ErrClosed)
	if ea != nil {
		return ea
	}
	return eb
}

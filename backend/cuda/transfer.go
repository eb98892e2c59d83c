package cuda

import (
	"encoding/binary"
	"fmt"

	"samebit/backend/cuda/driver"
	"samebit/tensor"
)

// ringBytes is the page-locked memory of a stream for each direction. Larger
// copies go piece by piece.
const ringBytes = 1 << 20

// ring is page-locked memory that is filled from the front until a wait empties it.
type ring struct {
	host []byte
	used int
	last int // where the last piece begins
}

func (r *ring) open(c driver.Context) (err error) {
	r.host, err = c.AllocHost(ringBytes)
	return err
}

func (r *ring) close(c driver.Context) error {
	if r.host == nil {
		return nil
	}
	h := r.host
	r.host = nil
	return c.FreeHost(h)
}

// take gives up to n bytes of what is free, none if it is full.
func (r *ring) take(n int) []byte {
	r.last = r.used
	b := r.host[r.used:min(r.used+n, len(r.host))]
	r.used = min((r.used+len(b)+63)&^63, len(r.host))
	return b
}

// pending is a piece of a Read that lies in the ring until the next wait.
type pending struct{ dst, src []byte }

// wait waits for the device and hands out what was read.
func (s *stream) wait() error {
	if s.busy {
		err := s.flush()
		if late := s.dev.ctx.Sync(s.q); err == nil && late != nil {
			err = fmt.Errorf("cuda: %w", late)
		}
		if err != nil {
			s.reads, s.in.used, s.out.used = s.reads[:0], 0, 0
			return err
		}
		s.busy = false
	}
	for _, r := range s.reads {
		copy(r.dst, r.src)
	}
	s.reads, s.in.used, s.out.used = s.reads[:0], 0, 0
	return nil
}

// bytesOf checks a contiguous tensor of Read and Write.
func (s *stream) bytesOf(op string, t tensor.Tensor, n int) (driver.Ptr, bool) {
	if !t.Valid() || !t.Contiguous() || t.DType().Bytes(t.Len()) != n {
		s.fails(fmt.Errorf("cuda: %s of %v with %d bytes: want it contiguous and of that size", op, t, n))
		return 0, false
	}
	if s.away(t) {
		return 0, false
	}
	return s.at(t), true
}

func (s *stream) Read(dst []byte, src tensor.Tensor) {
	if s.err != nil {
		return
	}
	p, ok := s.bytesOf("Read", src, len(dst))
	for ok && len(dst) > 0 {
		piece := s.out.take(len(dst))
		if len(piece) == 0 {
			if s.fails(s.wait()) {
				return
			}
			continue
		}
		if s.do(step{kind: copyOut, to: p, at: s.out.last, n: len(piece)}, nil); s.err != nil {
			return
		}
		s.reads = append(s.reads, pending{dst[:len(piece)], piece})
		dst, p = dst[len(piece):], p+driver.Ptr(len(piece))
	}
}

func (s *stream) Write(dst tensor.Tensor, src []byte) {
	if s.err != nil {
		return
	}
	if p, ok := s.bytesOf("Write", dst, len(src)); ok {
		s.send(p, src)
	}
}

// send copies bytes to the device in the order of the stream.
func (s *stream) send(p driver.Ptr, src []byte) bool {
	for len(src) > 0 {
		piece := s.in.take(len(src))
		if len(piece) == 0 {
			if s.fails(s.wait()) {
				return false
			}
			continue
		}
		copy(piece, src)
		if s.do(step{kind: copyIn, to: p, at: s.in.last, n: len(piece)}, nil); s.err != nil {
			return false
		}
		src, p = src[len(piece):], p+driver.Ptr(len(piece))
	}
	return true
}

// status is what kernels report: the struct Status of kernels/canon.cuh.
type status struct {
	mem  area
	host []byte
	used bool // a kernel that can fail was launched
}

const statusBytes = 16

func (st *status) open(s *stream) (err error) {
	c := s.dev.ctx
	if st.mem.ptr, err = c.Alloc(statusBytes); err != nil {
		return err
	}
	if st.host, err = c.AllocHost(statusBytes); err != nil {
		return err
	}
	s.busy = true
	return c.Fill(s.q, st.mem.ptr, 0, statusBytes)
}

// The ops whose operands only the device knows.
const (
	failEmbed = 1 + iota
	failGather
	failRows
	failRoute
	failExperts
	failEmbedGrad
	failGatherGrad
	failTarget
)

// reports appends the status to the parameters of a kernel that can fail.
func (s *stream) reports(p *driver.Params, op uint32) {
	s.status.used = true
	p.Ptr(s.status.mem.ptr).Uint32(op)
}

// message says what a kernel reported; nil if nothing.
func (st *status) message() error {
	v := func(i int) int { return int(int32(binary.LittleEndian.Uint32(st.host[4*i:]))) }
	switch v(0) {
	case 0:
		return nil
	case failEmbed:
		return fmt.Errorf("cuda: Embed: id %d of row %d is outside a table of %d", v(1), v(2), v(3))
	case failGather:
		return fmt.Errorf("cuda: Gather: index %d of output %d is outside %d rows", v(1), v(2), v(3))
	case failRows:
		return fmt.Errorf("cuda: LinearRows: output %d is outside a weight of %d", v(1), v(2))
	case failRoute:
		return fmt.Errorf("cuda: Route: the router's logits of row %d are NaN", v(1))
	case failEmbedGrad:
		return fmt.Errorf("cuda: EmbedGrad: id %d of row %d is outside a table of %d", v(1), v(2), v(3))
	case failGatherGrad:
		return fmt.Errorf("cuda: GatherGrad: index %d of row %d is outside %d rows", v(1), v(2), v(3))
	case failTarget:
		return fmt.Errorf("cuda: CrossEntropy: target %d of row %d is outside %d classes", v(1), v(2), v(3))
	}
	return fmt.Errorf("cuda: Experts: row %d asks for expert %d of %d", v(1), v(2), v(3))
}

// Sync waits for the device, also after a failure: whoever sees it return may free
// operands.
func (s *stream) Sync() error {
	if s.closed {
		return s.err
	}
	if s.status.used {
		s.do(step{kind: copyStatus, to: s.status.mem.ptr}, nil)
	}
	s.fails(s.wait())
	if s.status.used {
		s.status.used = false
		if err := s.status.message(); err != nil {
			s.fails(err)
			if err := s.dev.ctx.Fill(s.q, s.status.mem.ptr, 0, statusBytes); err != nil {
				s.fails(err)
			}
			s.busy = true
		}
	}
	return s.err
}

// Reset drops what is under way together with the failure.
func (s *stream) Reset() {
	if s.closed {
		return
	}
	s.reads = s.reads[:0]
	s.Sync()
	s.err = nil
}

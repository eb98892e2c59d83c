package emu

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"samebit/backend/cuda/driver"
)

// work is one piece of work in a stream or a graph.
type work func() error

// stream is work that has not run.
type stream struct {
	id        driver.Stream
	queue     []work
	capturing bool
	broken    error // why the capture cannot end well
}

// event is a point in a stream.
type event struct {
	at      time.Time
	pending bool
	stream  driver.Stream
}

// most is the work that a stream gathers before it runs.
const mostWork = 4096

// inOrder are the streams by handle.
func (v *Device) inOrder() []*stream {
	var out []*stream
	for _, s := range v.streams {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b *stream) int { return int(a.id) - int(b.id) })
	return out
}

// drain runs the work of a stream. A kernel's fault costs the device.
func (v *Device) drain(s *stream) error {
	if s.capturing {
		return nil
	}
	q := s.queue
	s.queue = nil
	return v.runAll(q)
}

func (v *Device) runAll(q []work) error {
	for _, f := range q {
		if err := f(); err != nil {
			var fault *Fault
			if errors.As(err, &fault) {
				v.lost = err
			}
			return err
		}
	}
	return nil
}

// give appends work to a stream.
func (v *Device) give(call string, h driver.Stream, f work) error {
	s := v.streams[h]
	if s == nil {
		return closed(call, h)
	}
	s.queue = append(s.queue, f)
	if len(s.queue) > mostWork && !s.capturing {
		return v.drain(s)
	}
	return nil
}

// NewStream returns a stream.
func (v *Device) NewStream() (driver.Stream, error) {
	defer v.leave()
	if err := v.enter("NewStream"); err != nil {
		return 0, err
	}
	h := driver.Stream(v.handle())
	v.streams[h] = &stream{id: h}
	return h, nil
}

// CloseStream runs what is left in the stream.
func (v *Device) CloseStream(h driver.Stream) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.streams[h]
	if s == nil {
		return closed("CloseStream", h)
	}
	delete(v.streams, h)
	if v.lost != nil {
		return nil
	}
	return v.drain(s)
}

// Sync runs the work of a stream.
func (v *Device) Sync(h driver.Stream) error {
	defer v.leave()
	if err := v.enter("Sync"); err != nil {
		return err
	}
	s := v.streams[h]
	switch {
	case s == nil:
		return closed("Sync", h)
	case s.capturing:
		s.broken = errors.New("Sync during the capture")
		return fmt.Errorf("emu: Sync of a stream that is being captured: %w", driver.ErrKernel)
	}
	return v.drain(s)
}

// device is the bytes of a range of device memory.
func (v *Device) device(call string, p driver.Ptr, n int, write bool) (data, set []byte, err error) {
	a, off, ok := v.mem.span(uint64(p), n)
	if !ok || write && a.readonly {
		_, why := v.mem.explain(uint64(p), n)
		return nil, nil, fmt.Errorf("emu: %s of %d bytes at %#x: %s: %w", call, n, uint64(p), why, driver.ErrKernel)
	}
	return a.data[off : off+n], a.set[off : off+n], nil
}

// host reports whether b lies in memory of AllocHost.
func (v *Device) host(b []byte) bool {
	for p, n := range v.hosts {
		if within(b, p, n) {
			return true
		}
	}
	return false
}

// CopyIn copies to the device, from host memory of AllocHost when the stream runs.
func (v *Device) CopyIn(s driver.Stream, dst driver.Ptr, src []byte) error {
	defer v.leave()
	if err := v.enter("CopyIn"); err != nil {
		return err
	}
	if len(src) == 0 {
		return nil
	}
	if _, _, err := v.device("CopyIn", dst, len(src), true); err != nil {
		return err
	}
	if !v.host(src) {
		if st := v.streams[s]; st != nil && st.capturing {
			return fmt.Errorf("emu: CopyIn during a capture from memory that is not of AllocHost: %w", driver.ErrKernel)
		}
		src = slices.Clone(src)
	}
	return v.give("CopyIn", s, func() error {
		data, set, err := v.device("CopyIn", dst, len(src), true)
		if err != nil {
			return err
		}
		copy(data, src)
		setAll(set)
		return nil
	})
}

// CopyOut copies from the device when the stream runs. Bytes that nothing wrote
// are copied as they are: only kernels must not read them.
func (v *Device) CopyOut(s driver.Stream, dst []byte, src driver.Ptr) error {
	defer v.leave()
	if err := v.enter("CopyOut"); err != nil {
		return err
	}
	if len(dst) == 0 {
		return nil
	}
	if !v.host(dst) {
		return fmt.Errorf("emu: CopyOut to memory that is not of AllocHost: %w", driver.ErrKernel)
	}
	if _, _, err := v.device("CopyOut", src, len(dst), false); err != nil {
		return err
	}
	return v.give("CopyOut", s, func() error {
		data, _, err := v.device("CopyOut", src, len(dst), false)
		if err != nil {
			return err
		}
		copy(dst, data)
		return nil
	})
}

// Copy copies within the device.
func (v *Device) Copy(s driver.Stream, dst, src driver.Ptr, bytes int) error {
	defer v.leave()
	if err := v.enter("Copy"); err != nil {
		return err
	}
	if bytes == 0 {
		return nil
	}
	if _, _, err := v.device("Copy", src, bytes, false); err != nil {
		return err
	}
	if _, _, err := v.device("Copy", dst, bytes, true); err != nil {
		return err
	}
	if src < dst+driver.Ptr(bytes) && dst < src+driver.Ptr(bytes) {
		return fmt.Errorf("emu: Copy of %d bytes from %#x to %#x, which overlap: %w", bytes, uint64(src), uint64(dst), driver.ErrKernel)
	}
	return v.give("Copy", s, func() error {
		from, fromSet, err := v.device("Copy", src, bytes, false)
		if err != nil {
			return err
		}
		to, toSet, err := v.device("Copy", dst, bytes, true)
		if err != nil {
			return err
		}
		copy(to, from)
		copy(toSet, fromSet)
		return nil
	})
}

// Fill sets bytes.
func (v *Device) Fill(s driver.Stream, dst driver.Ptr, value byte, bytes int) error {
	defer v.leave()
	if err := v.enter("Fill"); err != nil {
		return err
	}
	if bytes == 0 {
		return nil
	}
	if _, _, err := v.device("Fill", dst, bytes, true); err != nil {
		return err
	}
	return v.give("Fill", s, func() error {
		data, set, err := v.device("Fill", dst, bytes, true)
		if err != nil {
			return err
		}
		for i := range data {
			data[i] = value
		}
		setAll(set)
		return nil
	})
}

// Forget makes memory what Alloc returns: bytes that nothing has written.
func (v *Device) Forget(s driver.Stream, p driver.Ptr, bytes int) error {
	defer v.leave()
	if err := v.enter("Forget"); err != nil {
		return err
	}
	if bytes == 0 {
		return nil
	}
	if _, _, err := v.device("Forget", p, bytes, true); err != nil {
		return err
	}
	return v.give("Forget", s, func() error {
		_, set, err := v.device("Forget", p, bytes, true)
		if err != nil {
			return err
		}
		clear(set)
		return nil
	})
}

// Launch checks a launch; the kernel runs with the stream.
func (v *Device) Launch(s driver.Stream, h driver.Function, l driver.Launch, params []byte) error {
	defer v.leave()
	if err := v.enter("Launch"); err != nil {
		return err
	}
	f := v.funcs[h]
	if f == nil {
		return closed("Launch", h)
	}
	if err := f.p.check(l, params, f.p.shared+f.shared); err != nil {
		return err
	}
	params = slices.Clone(params)
	return v.give("Launch", s, func() error {
		r := v.ran[f.p.name]
		if r.p != f.p {
			r = Ran{f.p, make([]bool, len(f.p.blocks))}
			v.ran[f.p.name] = r
		}
		n, err := f.p.launch(&v.mem, l, params, v.cfg.Workers, v.cfg.Steps, &v.atomics, v.cfg.Sums, r.blocks)
		c := v.counts[f.p.name]
		if c == nil {
			c = new(Counts)
			v.counts[f.p.name] = c
		}
		c.Add(n)
		return err
	})
}

// NewEvent returns an event.
func (v *Device) NewEvent() (driver.Event, error) {
	defer v.leave()
	if err := v.enter("NewEvent"); err != nil {
		return 0, err
	}
	h := driver.Event(v.handle())
	v.events[h] = new(event)
	return h, nil
}

// CloseEvent gives an event back.
func (v *Device) CloseEvent(h driver.Event) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.events[h] == nil {
		return closed("CloseEvent", h)
	}
	delete(v.events, h)
	return nil
}

// Record makes the event the present point of the stream.
func (v *Device) Record(h driver.Event, s driver.Stream) error {
	defer v.leave()
	if err := v.enter("Record"); err != nil {
		return err
	}
	e := v.events[h]
	if e == nil {
		return closed("Record", h)
	}
	e.pending, e.stream = true, s
	return v.give("Record", s, func() error {
		e.at, e.pending = time.Now(), false
		return nil
	})
}

// Elapsed is the time between two events.
func (v *Device) Elapsed(from, to driver.Event) (time.Duration, error) {
	defer v.leave()
	if err := v.enter("Elapsed"); err != nil {
		return 0, err
	}
	a, b := v.events[from], v.events[to]
	switch {
	case a == nil:
		return 0, closed("Elapsed", from)
	case b == nil:
		return 0, closed("Elapsed", to)
	case a.pending || b.pending || a.at.IsZero() || b.at.IsZero():
		return 0, &driver.Error{Call: "Elapsed", Code: driver.NotReady, Name: "CUDA_ERROR_NOT_READY", Detail: "synchronise the stream first"}
	}
	return b.at.Sub(a.at), nil
}

// BeginCapture starts to gather the work of a stream.
func (v *Device) BeginCapture(h driver.Stream) error {
	defer v.leave()
	if err := v.enter("BeginCapture"); err != nil {
		return err
	}
	s := v.streams[h]
	switch {
	case s == nil:
		return closed("BeginCapture", h)
	case s.capturing:
		return fmt.Errorf("emu: BeginCapture of a stream that is being captured: %w", driver.ErrKernel)
	}
	if err := v.drain(s); err != nil {
		return err
	}
	s.capturing, s.broken = true, nil
	return nil
}

// EndCapture returns the work as a graph.
func (v *Device) EndCapture(h driver.Stream) (driver.Graph, error) {
	defer v.leave()
	if err := v.enter("EndCapture"); err != nil {
		return 0, err
	}
	s := v.streams[h]
	switch {
	case s == nil:
		return 0, closed("EndCapture", h)
	case !s.capturing:
		return 0, fmt.Errorf("emu: EndCapture of a stream that is not being captured: %w", driver.ErrKernel)
	}
	q := s.queue
	s.queue, s.capturing = nil, false
	if s.broken != nil {
		return 0, fmt.Errorf("emu: EndCapture: %w: %w", driver.ErrKernel, s.broken)
	}
	g := driver.Graph(v.handle())
	v.graphs[g] = q
	return g, nil
}

// Instantiate makes a graph ready.
func (v *Device) Instantiate(g driver.Graph) (driver.Exec, error) {
	defer v.leave()
	if err := v.enter("Instantiate"); err != nil {
		return 0, err
	}
	q, ok := v.graphs[g]
	if !ok {
		return 0, closed("Instantiate", g)
	}
	x := driver.Exec(v.handle())
	v.execs[x] = q
	return x, nil
}

// LaunchGraph gives the work of a graph to a stream.
func (v *Device) LaunchGraph(s driver.Stream, x driver.Exec) error {
	defer v.leave()
	if err := v.enter("LaunchGraph"); err != nil {
		return err
	}
	q, ok := v.execs[x]
	if !ok {
		return closed("LaunchGraph", x)
	}
	return v.give("LaunchGraph", s, func() error { return v.runAll(q) })
}

// CloseGraph gives a graph back.
func (v *Device) CloseGraph(g driver.Graph) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, ok := v.graphs[g]; !ok {
		return closed("CloseGraph", g)
	}
	delete(v.graphs, g)
	return nil
}

// CloseExec gives a ready graph back.
func (v *Device) CloseExec(x driver.Exec) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, ok := v.execs[x]; !ok {
		return closed("CloseExec", x)
	}
	delete(v.execs, x)
	return nil
}

var (
	_ driver.Driver    = (*Driver)(nil)
	_ driver.Context   = (*Device)(nil)
	_ driver.Forgetter = (*Device)(nil)
)

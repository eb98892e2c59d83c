package emu

import (
	"fmt"

	"samebit/backend/cuda/driver"
)

// Kind is a kind of fault.
type Kind uint8

const (
	OutOfBounds   Kind = iota // memory that is not there
	UseAfterFree              // memory that was freed
	Misaligned                // an address that is no multiple of the access
	Uninitialised             // a read of memory that nothing wrote
	Race                      // two threads at one shared word without a barrier
	Deadlock                  // threads wait for others that never come
	ReadOnly                  // a store to constant memory
	Runaway                   // more steps than Config.Steps
	BadLaunch                 // the shape or the parameters of a launch
)

var kindNames = [...]string{"out of bounds", "use after free", "misaligned", "uninitialised read", "shared-memory race", "deadlock", "store to constant memory", "runaway", "bad launch"}

func (k Kind) String() string { return kindNames[k] }

// Fault is what a kernel did wrong, and where. It is an ErrLost, as on a device.
type Fault struct {
	Kind   Kind
	Kernel string
	Line   int    // in the PTX text
	Text   string // of the line
	Block  [3]uint32
	Thread [3]uint32
	Detail string
}

func (f *Fault) Error() string {
	if f.Line == 0 {
		return fmt.Sprintf("emu: kernel %s: %v: %s", f.Kernel, f.Kind, f.Detail)
	}
	return fmt.Sprintf("emu: kernel %s, PTX line %d (%s), block %v, thread %v: %v: %s", f.Kernel, f.Line, f.Text, f.Block, f.Thread, f.Kind, f.Detail)
}

func (f *Fault) Unwrap() error {
	if f.Kind == BadLaunch {
		return driver.ErrKernel
	}
	return driver.ErrLost
}

// fail records the first fault of a warp; the block stops behind the instruction.
func (w *warp) fail(k Kind, line int32, lane int, format string, args ...any) {
	if w.fault == nil {
		w.fault = &Fault{Kind: k, Kernel: w.b.p.name, Line: int(line), Text: w.b.p.text(line), Block: w.b.at, Thread: w.thread(lane), Detail: fmt.Sprintf(format, args...)}
	}
}

// thread is the index in its block of the thread of a lane.
func (w *warp) thread(lane int) [3]uint32 {
	t := uint32(w.index*32 + lane)
	s := w.b.launch.Block
	return [3]uint32{t % s[0], t / s[0] % s[1], t / s[0] / s[1]}
}

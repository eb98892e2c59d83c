// Package driver is the part of the CUDA driver API that a backend needs: two
// interfaces, their typed handles and errors, and [Load], which binds them to
// the machine's driver library without cgo. Package emu implements the same
// interfaces in Go.
package driver

import "time"

// Ptr is an address in device memory. 0 is no memory.
type Ptr uint64

// Handles belong to the Context that made them; 0 is none.
type (
	Module   uintptr
	Function uintptr
	Stream   uintptr // 0 is not used: every call names a stream of NewStream
	Event    uintptr
	Graph    uintptr // a captured sequence of work
	Exec     uintptr // a graph made ready to run
)

// MaxParams is the number of bytes that the parameters of a kernel can have.
const MaxParams = 4096

// Driver finds devices. It is safe for concurrent use.
type Driver interface {
	// Version is the newest CUDA version that the driver knows, 1000·major +
	// 10·minor.
	Version() int
	// Count is the number of devices; ErrNoDevice if there are none.
	Count() (int, error)
	// Info describes device i of [0, Count).
	Info(i int) (Info, error)
	// Open retains the primary context of device i, which all of the process
	// shares.
	Open(i int) (Context, error)
}

// Info describes a device.
type Info struct {
	Name           string
	Memory         int64 // bytes
	Major, Minor   int   // compute capability
	Multiprocs     int   // streaming multiprocessors
	WarpSize       int   // threads
	MaxThreads     int   // threads of a block
	Shared         int   // bytes of shared memory of a block without SetMaxShared
	SharedOptin    int   // bytes of shared memory of a block with it
	ClockKHz       int   // of the multiprocessors
	MemoryClockKHz int   // two transfers per cycle
	MemoryBusBits  int
	L2             int // bytes of the last cache
}

// Launch is the shape of one kernel launch.
type Launch struct {
	Grid, Block [3]uint32 // blocks, and threads of each; all at least 1
	Shared      int       // bytes of dynamic shared memory
}

// FuncInfo is what the compiler of the driver says about a function.
type FuncInfo struct {
	Registers  int // of a thread
	Local      int // bytes of a thread outside registers: spills and arrays
	Shared     int // bytes of static shared memory
	MaxThreads int // of a block
}

// Context is one device made ready. It is safe for concurrent use by
// goroutines on any thread; the work of one stream runs in the order of the
// calls. No call keeps a Go slice after it returns except the copies, as their
// comments say.
//
// Errors are *Error values or wrap one of the sentinels of this package. After
// ErrLost the context is of no more use.
type Context interface {
	// MemInfo is the memory of the device that is free, and all of it, in bytes.
	MemInfo() (free, total int64, err error)
	// Close releases the context; its memory, modules and streams must have been
	// given back.
	Close() error

	// LoadModule compiles PTX text. name is for messages.
	LoadModule(name string, ptx []byte) (Module, error)
	UnloadModule(Module) error
	// Function finds an entry of a module.
	Function(Module, string) (Function, error)
	FuncInfo(Function) (FuncInfo, error)
	// SetMaxShared allows f that many bytes of dynamic shared memory, which is
	// needed from Info.Shared up to Info.SharedOptin.
	SetMaxShared(f Function, bytes int) error

	// Alloc returns uninitialised device memory, aligned to 256 bytes. bytes > 0.
	// It fails with ErrOutOfMemory.
	Alloc(bytes int) (Ptr, error)
	Free(Ptr) error
	// AllocHost returns page-locked memory of the host, outside the Go heap.
	AllocHost(bytes int) ([]byte, error)
	FreeHost([]byte) error

	// CopyIn copies src to the device. If src is memory of AllocHost it must not
	// change before the stream was synchronised; other memory may change when
	// the call returns.
	CopyIn(s Stream, dst Ptr, src []byte) error
	// CopyOut copies from the device, complete when the stream was synchronised.
	// dst must be memory of AllocHost.
	CopyOut(s Stream, dst []byte, src Ptr) error
	// Copy copies within the device; the ranges do not overlap.
	Copy(s Stream, dst, src Ptr, bytes int) error
	// Fill sets every byte.
	Fill(s Stream, dst Ptr, value byte, bytes int) error

	NewStream() (Stream, error)
	CloseStream(Stream) error
	// Sync waits for all work of the stream and reports what went wrong in it.
	Sync(Stream) error

	NewEvent() (Event, error)
	CloseEvent(Event) error
	Record(Event, Stream) error
	// Elapsed is the time between two events that have passed.
	Elapsed(from, to Event) (time.Duration, error)

	// Launch starts a kernel. params are its parameters as they lie in its
	// parameter space, see [Params]; at most MaxParams bytes. It allocates
	// nothing.
	Launch(s Stream, f Function, l Launch, params []byte) error

	// BeginCapture makes the following work of the stream part of a graph and
	// runs none of it until EndCapture. Memory of AllocHost that is copied from
	// or to is read and written by each LaunchGraph.
	BeginCapture(Stream) error
	// EndCapture ends a capture also when it fails.
	EndCapture(Stream) (Graph, error)
	Instantiate(Graph) (Exec, error)
	LaunchGraph(Stream, Exec) error
	CloseGraph(Graph) error
	CloseExec(Exec) error
}

// Forgetter is a Context that watches what kernels read, as that of package emu
// does.
type Forgetter interface {
	// Forget says, in the order of the stream, that nobody needs what memory holds:
	// a kernel that reads it before it is written again is at fault.
	Forget(s Stream, p Ptr, bytes int) error
}

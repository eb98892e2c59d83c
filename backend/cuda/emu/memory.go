package emu

import (
	"fmt"
	"slices"
)

// windows are the generic addresses at which the spaces begin that are not
// global; offsets in them are below 1<<32.
var windows = [...]uint64{shared: 0x7fff_0000_0000, local: 0x7ffe_0000_0000, param: 0x7ffd_0000_0000}

const windowSize = 1 << 32

// sharedBase is the address in its space at which a block's shared memory begins.
// Devices promise none, and from compute capability 8.0 on keep the first KiB for
// themselves: whoever forgets the address of a variable is out of bounds.
const sharedBase = 1024

// allocation is a piece of device memory. set marks the bytes that were written.
type allocation struct {
	base     uint64
	data     []byte
	set      []byte
	name     string // of a module's variable
	readonly bool
}

func (a *allocation) end() uint64 { return a.base + uint64(len(a.data)) }

// memory is a device's global memory. Addresses are never given out twice, so
// that whoever uses memory after Free is found.
type memory struct {
	live  []*allocation // by address
	dead  []ghost
	top   uint64
	used  int64
	limit int64
}

// ghost is where freed memory was.
type ghost struct{ base, size uint64 }

const firstAddress = 0x2_0000_0000

// alloc returns nil if it does not fit.
func (m *memory) alloc(bytes int, name string) *allocation {
	if int64(bytes) > m.limit-m.used {
		return nil
	}
	if m.top == 0 {
		m.top = firstAddress
	}
	a := &allocation{base: m.top, data: make([]byte, bytes), set: make([]byte, bytes), name: name}
	m.top = (a.end() + 4096 + 255) &^ 255 // a gap, so that small overruns hit nothing
	m.live = append(m.live, a)
	m.used += int64(bytes)
	return a
}

func (m *memory) index(addr uint64) (int, bool) {
	return slices.BinarySearchFunc(m.live, addr, func(a *allocation, addr uint64) int {
		switch {
		case addr < a.base:
			return 1
		case addr >= a.end():
			return -1
		}
		return 0
	})
}

// find is the allocation that holds an address, or nil.
func (m *memory) find(addr uint64) *allocation {
	if i, ok := m.index(addr); ok {
		return m.live[i]
	}
	return nil
}

func (m *memory) free(base uint64) bool {
	i, ok := m.index(base)
	if !ok || m.live[i].base != base {
		return false
	}
	a := m.live[i]
	m.live = slices.Delete(m.live, i, i+1)
	m.used -= int64(len(a.data))
	m.dead = append(m.dead, ghost{a.base, uint64(len(a.data))})
	return true
}

// span is the bytes [addr, addr+n) of one allocation, if there are.
func (m *memory) span(addr uint64, n int) (*allocation, int, bool) {
	if a := m.find(addr); a != nil && uint64(n) <= a.end()-addr {
		return a, int(addr - a.base), true
	}
	return nil, 0, false
}

// explain says what is at an address that cannot be used.
func (m *memory) explain(addr uint64, n int) (Kind, string) {
	if addr < 1<<16 {
		return OutOfBounds, fmt.Sprintf("the address %#x is null", addr)
	}
	for _, d := range m.dead {
		if addr >= d.base && addr-d.base < d.size {
			return UseAfterFree, fmt.Sprintf("the memory at %#x was freed (byte %d of %d)", addr, addr-d.base, d.size)
		}
	}
	i, ok := m.index(addr)
	if ok {
		a := m.live[i]
		return OutOfBounds, fmt.Sprintf("bytes %d to %d reach past the end of %s", addr-a.base, addr-a.base+uint64(n)-1, a)
	}
	near := uint64(1 << 20)
	why := fmt.Sprintf("no memory at %#x", addr)
	if i > 0 && addr-m.live[i-1].end() < near {
		near = addr - m.live[i-1].end()
		why = fmt.Sprintf("%d bytes past the end of %s", near, m.live[i-1])
	}
	if i < len(m.live) && m.live[i].base-addr < near {
		why = fmt.Sprintf("%d bytes before %s", m.live[i].base-addr, m.live[i])
	}
	return OutOfBounds, why
}

func (a *allocation) String() string {
	if a.name != "" {
		return fmt.Sprintf("variable %s of %d bytes", a.name, len(a.data))
	}
	return fmt.Sprintf("an allocation of %d bytes at %#x", len(a.data), a.base)
}

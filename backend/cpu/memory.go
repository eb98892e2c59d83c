package cpu

import (
	"fmt"
	"sync"
	"unsafe"

	"samebit/backend"
)

// hugePage is the size and alignment of a huge page where the system has them.
const hugePage = 2 << 20

// memory is a buffer outside the Go heap.
type memory struct {
	mu   sync.Mutex
	b    []byte
	part piece
	from *slabs // where part goes back to; nil for a mapping of its own
}

func (m *memory) Len() int     { return len(m.b) }
func (m *memory) Host() []byte { return m.b }

func (m *memory) free() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.b == nil {
		return
	}
	if m.from != nil {
		m.from.put(m.part)
		m.part = piece{}
	} else {
		unmap(m.b)
	}
	m.b = nil
}

func alloc(bytes int) (*memory, error) {
	if bytes < 0 {
		return nil, fmt.Errorf("cpu: Alloc of %d bytes: %w", bytes, backend.ErrNoMemory)
	}
	if bytes == 0 {
		return &memory{b: []byte{}}, nil
	}
	b, err := mapped(bytes)
	if err != nil {
		return nil, fmt.Errorf("cpu: Alloc of %d bytes: %w: %w", bytes, backend.ErrNoMemory, err)
	}
	return &memory{b: b}, nil
}

// touch has the workers ask for the huge pages of b, whose zeros nobody uses yet, one
// each: those that first write to the same page side by side would each clear one.
func (d *Device) touch(b []byte) {
	if d.pool.Threads() > 1 && len(b) > hugePage {
		at := int(uintptr(unsafe.Pointer(unsafe.SliceData(b))) % hugePage)
		d.pool.Run(touching{b, at}, (at+len(b)+hugePage-1)/hugePage)
	}
}

type touching struct {
	b  []byte
	at int // of its first byte in a huge page
}

func (t touching) Do(_, chunk int) { t.b[max(0, chunk*hugePage-t.at)] = 0 }

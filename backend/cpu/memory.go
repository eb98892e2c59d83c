package cpu

import (
	"fmt"
	"sync"

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

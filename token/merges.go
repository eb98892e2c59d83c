package token

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"math/bits"
	"slices"
)

// mergeTable maps a pair of ids to the rank of their merge. A slot is
// left<<44 | right<<24 | rank, so that a probe costs one load; all ones is
// free. Linear probing keeps a miss, the common answer, in one cache line.
type mergeTable struct {
	slots  []uint64
	used   int
	result []int32 // id that each rank makes
	mul    uint64  // random and odd: multiply-shift hashing that an input cannot aim at
	shift  uint8
}

func newMergeTable() mergeTable {
	m := mergeTable{mul: maphash.Bytes(maphash.MakeSeed(), nil) | 1}
	m.resize(64)
	return m
}

// resize moves the merges to a table of size slots, a power of two.
func (m *mergeTable) resize(size int) {
	old := m.slots
	m.slots = make([]uint64, size)
	m.shift = uint8(64 - bits.Len(uint(size-1)))
	for i := range m.slots {
		m.slots[i] = freeSlot
	}
	for _, s := range old {
		if s != freeSlot {
			i := m.start(s >> 24)
			for m.slots[i] != freeSlot {
				i = (i + 1) & (len(m.slots) - 1)
			}
			m.slots[i] = s
		}
	}
}

func (m *mergeTable) start(key uint64) int { return int(key * m.mul >> m.shift) }

// rank returns the rank of the merge of two ids, noRank if there is none.
func (m *mergeTable) rank(left, right int32) uint32 {
	key := uint64(left)<<20 | uint64(right)
	for i := m.start(key); ; i++ {
		s := m.slots[i&(len(m.slots)-1)]
		if s>>24 == key || s == freeSlot {
			return uint32(s) & noRank
		}
	}
}

// put stores the merge of the given rank and returns the rank that the pair
// already had (then nothing changes), noRank otherwise. Callers fill result.
func (m *mergeTable) put(left, right int32, rank uint32) uint32 {
	if m.used >= len(m.slots)/3*2 {
		m.resize(2 * len(m.slots))
	}
	key := uint64(left)<<20 | uint64(right)
	for i := m.start(key); ; i++ {
		s := &m.slots[i&(len(m.slots)-1)]
		if *s == freeSlot {
			*s = key<<24 | uint64(rank)
			m.used++
			return noRank
		}
		if *s>>24 == key {
			return uint32(*s) & noRank
		}
	}
}

// A merger adds merges in rank order; its fields are scratch.
type merger struct {
	left, right, concat []byte
}

// putLine adds line i of the form "a b".
func (m *merger) putLine(t *Tokenizer, i int, line []byte) error {
	if i == 0 && bytes.HasPrefix(line, []byte("#version")) { // the head of a merges.txt
		return nil
	}
	a, b, two := bytes.Cut(line, []byte(" "))
	if !two || bytes.IndexByte(b, ' ') >= 0 {
		return fmt.Errorf("merge %d, %.40q, is not two tokens around one space", i, line)
	}
	return m.put(t, i, a, b)
}

// put adds entry i, the merge of the vocabulary keys a and b. It fails when one
// of them or their concatenation is no token, or when the pair was there before.
func (m *merger) put(t *Tokenizer, i int, a, b []byte) error {
	var ok1, ok2 bool
	m.concat, ok1 = appendBytes(m.concat[:0], a)
	n := len(m.concat)
	m.concat, ok2 = appendBytes(m.concat, b)
	if !ok1 || !ok2 {
		return fmt.Errorf("%w: merge %d, %.40q + %.40q, is not written in the byte alphabet", ErrUnsupported, i, a, b)
	}
	left, right, whole := t.words.lookup(string(m.concat[:n])), t.words.lookup(string(m.concat[n:])), t.words.lookup(string(m.concat))
	if left < 0 || right < 0 || whole < 0 {
		return fmt.Errorf("merge %d, %.40q + %.40q: ids %d + %d = %d, where -1 is no token of the vocabulary", i, a, b, left, right, whole)
	}
	rank := len(t.merges.result)
	if rank == maxMerges {
		return fmt.Errorf("more than %d merges", maxMerges)
	}
	if old := t.merges.put(left, right, uint32(rank)); old != noRank {
		return fmt.Errorf("merge %d, %.40q + %.40q, repeats merge %d", i, a, b, old)
	}
	t.merges.result = append(t.merges.result, whole)
	return nil
}

// putMerges adds all merges of a GGUF file.
func (t *Tokenizer) putMerges(lines []string) error {
	t.merges = newMergeTable()
	var m merger
	for i, line := range lines {
		m.left = append(m.left[:0], line...)
		if err := m.putLine(t, i, m.left); err != nil {
			return err
		}
	}
	t.merges.result = slices.Clip(t.merges.result)
	return nil
}

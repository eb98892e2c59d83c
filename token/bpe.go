package token

import "slices"

// shortPiece is the length in bytes up to which pieces are merged by looking
// through all ranks at each step; nearly all pieces of text are shorter.
const shortPiece = 40

// appendPiece appends the ids of one piece. Bytes without a token produce
// nothing, and their neighbours may merge. There is no cache of pieces: merging
// one takes about as long as finding it, and needs no lock.
func (t *Tokenizer) appendPiece(dst []int32, piece string, s *scratch) []int32 {
	if t.wholePieces {
		if id := t.words.lookup(piece); id >= 0 && t.words.kind[id]&kindAdded == 0 {
			return append(dst, id)
		}
	}
	if len(piece) <= shortPiece {
		return t.mergeShort(dst, piece)
	}
	return t.mergeLong(dst, piece, s)
}

// mergeShort takes O(n²) steps for n bytes, n ≤ shortPiece.
func (t *Tokenizer) mergeShort(dst []int32, piece string) []int32 {
	var sym [shortPiece]int32
	var rank [shortPiece]uint32 // rank[i] is that of sym[i], sym[i+1]
	n := 0
	for i := range len(piece) {
		if id := t.byteID[piece[i]]; id >= 0 {
			sym[n] = id
			n++
		}
	}
	for i := 1; i < n; i++ {
		rank[i-1] = t.merges.rank(sym[i-1], sym[i])
	}
	for n > 1 {
		best, at := noRank, 0
		for i, r := range rank[:n-1] {
			if r < best {
				best, at = r, i
			}
		}
		if best == noRank {
			break
		}
		sym[at] = t.merges.result[best]
		n--
		for i := at + 1; i < n; i++ {
			sym[i], rank[i-1] = sym[i+1], rank[i]
		}
		if at > 0 {
			rank[at-1] = t.merges.rank(sym[at-1], sym[at])
		}
		if at+1 < n {
			rank[at] = t.merges.rank(sym[at], sym[at+1])
		}
	}
	return append(dst, sym[:n]...)
}

// scratch is memory for mergeLong, kept for the pieces of one text.
type scratch struct {
	syms  []symbol
	first []uint64
	later minHeap
}

// symbol is a node of the list of what a piece has been merged to.
type symbol struct {
	id         int32
	prev, next int32  // −1 at the ends
	rank       uint32 // of the merge with next
}

// mergeLong takes O(n log n) steps: candidates wait in order of rank, then
// place, those of the single bytes in a sorted list, later ones in a heap. A
// candidate is stale when its place has another rank by then.
func (t *Tokenizer) mergeLong(dst []int32, piece string, s *scratch) []int32 {
	syms, first, later := slices.Grow(s.syms[:0], len(piece)), slices.Grow(s.first[:0], len(piece)), s.later[:0]
	for i := range len(piece) {
		if id := t.byteID[piece[i]]; id >= 0 {
			n := int32(len(syms))
			syms = append(syms, symbol{id: id, prev: n - 1, next: n + 1, rank: noRank})
		}
	}
	if len(syms) > 0 {
		syms[len(syms)-1].next = -1
	}
	for i := range len(syms) - 1 {
		if r := t.merges.rank(syms[i].id, syms[i+1].id); r != noRank {
			syms[i].rank = r
			first = append(first, candidate(r, int32(i)))
		}
	}
	slices.Sort(first)
	for next := 0; next < len(first) || len(later) > 0; {
		var top uint64
		if len(later) == 0 || next < len(first) && first[next] < later[0] {
			top = first[next]
			next++
		} else {
			top, later = later.pop()
		}
		rank, at := uint32(top>>32), int32(uint32(top))
		if syms[at].rank != rank {
			continue
		}
		left, right := &syms[at], &syms[syms[at].next]
		right.rank = noRank
		left.id, left.next = t.merges.result[rank], right.next
		left.rank = noRank
		if left.next >= 0 {
			syms[left.next].prev = at
			if left.rank = t.merges.rank(left.id, syms[left.next].id); left.rank != noRank {
				later = later.push(candidate(left.rank, at))
			}
		}
		if left.prev >= 0 {
			before := &syms[left.prev]
			if before.rank = t.merges.rank(before.id, left.id); before.rank != noRank {
				later = later.push(candidate(before.rank, left.prev))
			}
		}
	}
	if len(syms) > 0 {
		for i := int32(0); i >= 0; i = syms[i].next {
			dst = append(dst, syms[i].id)
		}
	}
	s.syms, s.first, s.later = syms, first, later
	return dst
}

func candidate(rank uint32, at int32) uint64 { return uint64(rank)<<32 | uint64(at) }

// minHeap is a heap, least first, in which node i has children 4i+1 to 4i+4:
// half as deep as a binary heap, and siblings share a cache line.
type minHeap []uint64

func (h minHeap) push(v uint64) minHeap {
	h = append(h, v)
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / 4
		if h[up] <= v {
			break
		}
		h[i] = h[up]
		i = up
	}
	h[i] = v
	return h
}

func (h minHeap) pop() (uint64, minHeap) {
	top, n := h[0], len(h)-1
	v := h[n]
	h = h[:n]
	for i := 0; i < n; {
		least, at := v, -1
		for c := 4*i + 1; c <= 4*i+4 && c < n; c++ {
			if h[c] < least {
				least, at = h[c], c
			}
		}
		h[i] = least
		if at < 0 {
			break
		}
		i = at
	}
	return top, h
}

package state

// Cut returns the snapshot after the first n rows of s, 0 < n <= s.Len(), sharing
// its memory; the caller releases it. Keys and values can be cut anywhere; false is
// returned for kinds that cannot, as a recurrent state, which remembers only where
// it is.
func Cut(s Snapshot, n int) (Snapshot, bool) {
	if n == s.Len() {
		return s.Retain(), true
	}
	c, ok := s.(interface{ Cut(n int) (Snapshot, bool) })
	if !ok || n < 1 || n > s.Len() {
		return nil, false
	}
	return c.Cut(n)
}

// Cut leaves rows beyond n in the last page. They are not read, and whoever writes
// there copies the page first.
func (s *kvSnapshot) Cut(n int) (Snapshot, bool) {
	c := &kvSnapshot{id: s.id, shape: s.shape, n: n, pages: s.pages[:pageCount(n)].retain()}
	c.refs.Store(1)
	return c, true
}

func (s *stackSnapshot) Cut(n int) (Snapshot, bool) {
	c := &stackSnapshot{}
	c.refs.Store(1)
	for _, p := range s.parts {
		q, ok := Cut(p, n)
		if !ok {
			c.Release()
			return nil, false
		}
		c.parts = append(c.parts, q)
	}
	return c, true
}

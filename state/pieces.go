package state

// Pieces calls f for every piece of pool memory that s refers to, with its bytes.
// A piece is comparable and equal in all snapshots that share it, so whoever
// keeps many snapshots can count each piece once. A piece names its memory only
// as long as a snapshot that refers to it is held.
//
// A snapshot of a kind that shares nothing is one piece; kinds of other packages
// implement Pieces(f) themselves when they share.
func Pieces(s Snapshot, f func(piece any, bytes int64)) {
	if p, ok := s.(interface {
		Pieces(f func(piece any, bytes int64))
	}); ok {
		p.Pieces(f)
		return
	}
	if s != nil {
		f(s, s.Bytes())
	}
}

func (s *kvSnapshot) Pieces(f func(any, int64)) {
	for _, b := range s.pages {
		f(b, b.bytes())
	}
}

func (s *stackSnapshot) Pieces(f func(any, int64)) {
	for _, p := range s.parts {
		Pieces(p, f)
	}
}

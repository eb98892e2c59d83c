package state

import (
	"fmt"

	"samebit/backend"
)

// pages are blocks of 64 slots that states and snapshots share.
type pages []*block

// pageCount is the number of pages that n rows need.
func pageCount(n int) int { return (n + backend.Page - 1) / backend.Page }

// retain returns the same pages with a reference more to each.
func (p pages) retain() pages {
	c := make(pages, len(p))
	for i, b := range p {
		c[i] = b.retain()
	}
	return c
}

// cut releases the pages from used on.
func (p *pages) cut(used int) {
	for _, b := range (*p)[used:] {
		b.release()
	}
	clear((*p)[used:])
	*p = (*p)[:used]
}

// own makes page i one that nobody else sees.
func (p pages) own(i int) error {
	if !p[i].shared() {
		return nil
	}
	c, err := p[i].clone()
	if err != nil {
		return err
	}
	p[i].release()
	p[i] = c
	return nil
}

// grow adds new pages until there are need.
func (p *pages) grow(need int, page func() (*block, error)) error {
	for len(*p) < need {
		b, err := page()
		if err != nil {
			return err
		}
		*p = append(*p, b)
	}
	return nil
}

// in fails with ErrForeign if the pages lie in another pool.
func (p pages) in(pool *Pool) error {
	if len(p) > 0 && p[0].pool != pool {
		return errOtherPool
	}
	return nil
}

var errOtherPool = fmt.Errorf("state: the snapshot lies in another pool, use Move: %w", ErrForeign)

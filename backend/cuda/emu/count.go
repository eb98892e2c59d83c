package emu

import (
	"math/bits"
	"slices"
)

// Counts is what the launches of a kernel did, for a model of its time on a
// device.
type Counts struct {
	Launches, Blocks, Warps int64
	Threads                 [Classes]int64 // instructions of threads, by class
	Issued                  [Classes]int64 // instructions of warps
	GlobalRead              int64          // bytes that threads read from global and constant memory
	GlobalWritten           int64
	ReadSectors             int64 // pieces of 32 bytes that these touched, by warp instruction
	WriteSectors            int64
	SharedPasses            int64 // passes over the banks of shared memory
	SharedConflicts         int64 // of these, those that another address at the same bank caused
	Barriers                int64 // of whole blocks
	Diverged                int64 // branches that parted the lanes of a warp
}

// Add adds o to c.
func (c *Counts) Add(o Counts) {
	c.Launches += o.Launches
	c.Blocks += o.Blocks
	c.Warps += o.Warps
	for i := range c.Threads {
		c.Threads[i] += o.Threads[i]
		c.Issued[i] += o.Issued[i]
	}
	c.GlobalRead += o.GlobalRead
	c.GlobalWritten += o.GlobalWritten
	c.ReadSectors += o.ReadSectors
	c.WriteSectors += o.WriteSectors
	c.SharedPasses += o.SharedPasses
	c.SharedConflicts += o.SharedConflicts
	c.Barriers += o.Barriers
	c.Diverged += o.Diverged
}

// Instructions is the number that threads ran.
func (c *Counts) Instructions() int64 {
	var n int64
	for _, t := range c.Threads {
		n += t
	}
	return n
}

// sectors adds the pieces of 32 bytes that an access touches.
func (c *Counts) sectors(w *warp, m uint32, bytes int, to *int64) {
	// Most accesses rise from lane to lane, so that a new sector is one above the
	// last; the rest is compared with all before it.
	var seen [32]uint64
	n := 0
	last, rising := uint64(0), true
	for x := m; x != 0; x &= x - 1 {
		s := w.addr[bits.TrailingZeros32(x)] >> 5
		if n > 0 {
			if s == last {
				continue
			}
			rising = rising && s > last
			if !rising {
				again := false
				for _, o := range seen[:n] {
					if o == s {
						again = true
						break
					}
				}
				if again {
					last = s
					continue
				}
			}
		}
		seen[n] = s
		n++
		last = s
	}
	*to += int64(n)
}

// banks adds the passes of an access over the 32 banks of four bytes: wide
// accesses take a half or a quarter of the warp at a time, equal addresses are
// served together.
func (c *Counts) banks(w *warp, m uint32, bytes int) {
	group, words := min(32, 128/max(bytes, 4)), uint64(max(bytes, 4)/4)
	for g := 0; g < 32; g += group {
		var taken uint32    // banks that serve a word
		var word [32]uint64 // which
		var more [32]uint64 // further words
		var extra [32]int   // of them, by bank
		passes, n := 0, 0
		last := ^uint64(0)
		for x := m >> g << (32 - group) >> (32 - group); x != 0; x &= x - 1 {
			first := w.addr[g+bits.TrailingZeros32(x)] >> 2
			if first == last {
				continue
			}
			last = first
			for a := first; a < first+words; a++ {
				b := a & 31
				switch {
				case taken>>b&1 == 0:
					taken |= 1 << b
					word[b] = a
					passes = max(passes, 1)
				case word[b] != a && !slices.Contains(more[:n], a):
					more[n] = a
					n++
					extra[b]++
					passes = max(passes, 1+extra[b])
				}
			}
		}
		c.SharedPasses += int64(passes)
		c.SharedConflicts += int64(max(0, passes-1))
	}
}

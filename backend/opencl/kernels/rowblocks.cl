// Sums over the rows of a pass go in blocks of ROWBLOCK rows of a segment, each a chain of its
// own (docs/numerics.md 10).

#define ROWBLOCK 128

// BLOCKS runs over the row blocks of all segments, [lo, hi) of the pass.
#define BLOCKS(lo, hi)                                                                      \
    for (uint seg_ = 0; seg_ < segs; seg_++)                                                \
        for (ulong lo = SEG(seg_).first, end_ = lo + SEG(seg_).rows, hi = min(lo + ROWBLOCK, end_); lo < end_; lo = hi, hi = min(lo + ROWBLOCK, end_))

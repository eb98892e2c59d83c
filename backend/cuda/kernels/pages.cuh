// Pages of keys and values (docs/numerics.md 7). A page of 64 slots is logically
// [2·layers, heads, 64, D]. Values lie as that says; keys lie turned,
// [D/4][64][4] where 4 divides D and [D][64] elsewhere, so that the lanes of a
// warp, which are slots, read neighbouring bytes.
#pragma once
#include "plan.cuh"

// Cache is what every kernel of attention knows about the pass.
struct Cache {
  const Seg *segs;
  const int *segOf; // of a row of the pass
  float *const *pages;
  int layer, heads, d, window;
  int wide, pad; // keys can be read in 16 bytes: 4 divides D and pages are aligned
};

DEV int turned(int c, int j, int d) { return d & 3 ? c * 64 + j : ((c >> 2) * 64 + j) * 4 + (c & 3); }

// page is the keys (0) or values (1) of a head in a block.
DEV float *page(const Cache &a, const Seg &s, int part, int head, int block) {
  return global(a.pages[s.pages + block]) + ((i64)(2 * a.layer + part) * a.heads + head) * 64 * a.d;
}

// Tile is up to 32 neighbouring rows of a segment.
struct Tile {
  int seg, row, rows, pad; // row counts within the segment
};

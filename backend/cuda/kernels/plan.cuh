// The ragged tables of a pass as Go uploads them (plan.go).
#pragma once
#include "canon.cuh"

struct Seg {
  int row, rows, slot, pages;       // pages: where its page addresses begin in the table
  const float *deltaIn;             // [layers, heads, dk, dv]
  float *deltaOut;
  const float *convIn;              // [layers, taps-1, channels]
  float *convOut;
  const float *sumIn;
  float *sumOut;
};

// Package interop turns tensors of this module into tensors of
// gorgonia.org/tensor and back without copying them.
//
// It is a module of its own: gorgonia needs 125 modules, which no program that
// only runs models should have to fetch.
//
// Gorgonia works out the place of an element from strides in some functions and
// ignores them in others. A product with a column slice, Materialize of a slice
// of a transposed tensor, and Data of any view with gaps are wrong without an
// error; Data, WriteNpy and printing panic where there are no elements. So only
// float32 without gaps goes over, and the conversions refuse the rest: [Pack]
// and [PackDense] make copies without gaps.
//
// Both sides share memory after a conversion. What one writes the other reads,
// and neither locks. Gorgonia's Transpose moves elements within that memory, so
// the tensor made before it sees them permuted; its T only relabels.
package interop

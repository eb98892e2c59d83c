// Package checkpoint opens model files as named tensors that are mapped, not
// copied.
//
// It reads safetensors (one file, or shards with an index) and GGUF versions 2
// and 3, writes both, and knows nothing about models. A [Set] is what was
// opened; [Set.Tensor] gives an [Entry], a view of the bytes in the file.
//
// # Trust
//
// Files are not trusted. Every length, count and offset is compared with the
// size of the file before it is used, and nothing is allocated in the size that
// a file claims: memory grows with the header bytes that are really there (at
// most 16 bytes per header byte, plus a constant). Tensors must lie inside the file and
// must not overlap; in safetensors they must also cover the data without a gap,
// as the reference implementation demands. Names must be unique. What breaks a
// rule is refused with an error that wraps [ErrCorrupt] and names the file, the
// tensor and the numbers. The values of weights are not looked at.
//
// # Byte order and alignment
//
// Entry.Data are the bytes of the file: little-endian on every machine. On a
// little-endian machine they may be viewed as []float32 and so on, because
// [Set.Tensor] returns bytes aligned to the element (a tensor that its file
// stores misaligned is copied once per call). A big-endian machine (s390x) must
// decode instead of viewing; [Entry.Float32s] and its relatives do that.
//
// # Lifetime
//
// A Set may be used by many goroutines. Close ends the life of every Entry.Data
// and of nothing else: names, shapes, configs and the values that [Meta] returns
// are copies. Reading Data after Close ends the program, as does a file that
// somebody shortens while it is mapped; replace model files by renaming.
package checkpoint

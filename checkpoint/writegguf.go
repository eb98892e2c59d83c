package checkpoint

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"
)

// KV is a key with a value for WriteGGUF: uint8, int8, uint16, int16, uint32,
// int32, uint64, int64, float32, float64, bool, string, or a slice of one.
type KV struct {
	Key   string
	Value any
}

// WriteGGUF writes a GGUF file, version 3, with the pairs and tensors in the
// given order. Tensors have 1 to 4 dimensions, none of them 0, in Entry's order
// (last axis fastest); the file gets them reversed. Data begins and each tensor
// begins at multiples of the pair "general.alignment" (a uint32), or of 32
// without one, and each tensor is padded to that. Everything is checked before
// the first byte is written, by the rules of Open.
func WriteGGUF(w io.Writer, tensors []Entry, meta []KV) error {
	head, align, err := ggufHeader(tensors, meta)
	if err != nil {
		return fmt.Errorf("checkpoint: write GGUF: %w", err)
	}
	if _, err := w.Write(head); err != nil {
		return fmt.Errorf("checkpoint: write GGUF header: %w", err)
	}
	padding := make([]byte, align)
	for _, t := range tensors {
		if _, err := w.Write(t.Data); err != nil {
			return fmt.Errorf("checkpoint: write tensor %q: %w", clip(t.Name), err)
		}
		if _, err := w.Write(padding[:pad(len(t.Data), align)]); err != nil {
			return fmt.Errorf("checkpoint: write tensor %q: %w", clip(t.Name), err)
		}
	}
	return nil
}

// pad is the distance from n to the next multiple of align, a power of two.
func pad(n, align int) int { return -n & (align - 1) }

func ggufHeader(tensors []Entry, meta []KV) (b []byte, align int, err error) {
	le := binary.LittleEndian
	b = le.AppendUint32([]byte(ggufMagic), 3)
	b = le.AppendUint64(b, uint64(len(tensors)))
	b = le.AppendUint64(b, uint64(len(meta)))
	align = defaultAlign
	keys := make(map[string]bool)
	for _, kv := range meta {
		if len(kv.Key) > maxKey {
			return nil, 0, fmt.Errorf("key of %d bytes, at most %d are allowed", len(kv.Key), maxKey)
		}
		if err := checkName(keys, kv.Key); err != nil {
			return nil, 0, fmt.Errorf("keys: %w", err)
		}
		b = appendText(b, kv.Key)
		if b, err = appendValue(b, kv.Value); err != nil {
			return nil, 0, fmt.Errorf("key %q: %w", clip(kv.Key), err)
		}
		if kv.Key == alignKey {
			a, ok := kv.Value.(uint32)
			if !ok || a < minAlign || a > maxAlign || a&(a-1) != 0 {
				return nil, 0, fmt.Errorf("%s is %v, a uint32 power of two from %d to %d is required", alignKey, kv.Value, minAlign, maxAlign)
			}
			align = int(a)
		}
	}
	names, at := make(map[string]bool), 0
	for _, t := range tensors {
		if err := checkName(names, t.Name); err != nil {
			return nil, 0, err
		}
		if err := t.check(); err != nil {
			return nil, 0, err
		}
		rank := len(t.Shape)
		if rank < 1 || rank > maxGGUFRank || len(t.Data) == 0 {
			return nil, 0, fmt.Errorf("tensor %q: shape %v, 1 to %d dimensions of at least 1 are required", clip(t.Name), t.Shape, maxGGUFRank)
		}
		values, _ := t.Type.Block()
		if !t.Type.is(inGGUF) || t.Shape[rank-1]%values != 0 {
			return nil, 0, fmt.Errorf("tensor %q: rows of %d values of type %v cannot be stored in GGUF", clip(t.Name), t.Shape[rank-1], t.Type)
		}
		b = le.AppendUint32(appendText(b, t.Name), uint32(rank))
		for _, d := range slices.Backward(t.Shape) {
			b = le.AppendUint64(b, uint64(d))
		}
		b = le.AppendUint64(le.AppendUint32(b, types[t.Type].id), uint64(at))
		at += len(t.Data) + pad(len(t.Data), align)
	}
	return append(b, make([]byte, pad(len(b), align))...), align, nil
}

func appendText(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

// appendValue appends the type of v and v.
func appendValue(b []byte, v any) ([]byte, error) {
	le := binary.LittleEndian
	switch v := v.(type) {
	case string:
		return appendText(le.AppendUint32(b, kindString), v), nil
	case []string:
		b = appendArray(b, kindString, len(v))
		for _, s := range v {
			b = appendText(b, s)
		}
		return b, nil
	}
	kind, n := kindOf(v)
	switch {
	case kind == kindCount:
		return nil, fmt.Errorf("values of Go type %T cannot be stored", v)
	case n < 0:
		b = le.AppendUint32(b, kind)
	default:
		b = appendArray(b, kind, n)
	}
	return binary.Append(b, le, v)
}

func appendArray(b []byte, elem uint32, n int) []byte {
	b = binary.LittleEndian.AppendUint32(b, kindArray)
	b = binary.LittleEndian.AppendUint32(b, elem)
	return binary.LittleEndian.AppendUint64(b, uint64(n))
}

// kindOf returns the kind of a number or bool and -1, or the kind of the
// elements of a slice and its length; kindCount for anything else.
func kindOf(v any) (kind uint32, n int) {
	switch v := v.(type) {
	case uint8:
		return kindU8, -1
	case int8:
		return kindI8, -1
	case uint16:
		return kindU16, -1
	case int16:
		return kindI16, -1
	case uint32:
		return kindU32, -1
	case int32:
		return kindI32, -1
	case uint64:
		return kindU64, -1
	case int64:
		return kindI64, -1
	case float32:
		return kindF32, -1
	case float64:
		return kindF64, -1
	case bool:
		return kindBool, -1
	case []uint8:
		return kindU8, len(v)
	case []int8:
		return kindI8, len(v)
	case []uint16:
		return kindU16, len(v)
	case []int16:
		return kindI16, len(v)
	case []uint32:
		return kindU32, len(v)
	case []int32:
		return kindI32, len(v)
	case []uint64:
		return kindU64, len(v)
	case []int64:
		return kindI64, len(v)
	case []float32:
		return kindF32, len(v)
	case []float64:
		return kindF64, len(v)
	case []bool:
		return kindBool, len(v)
	}
	return kindCount, 0
}

package checkpoint

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Write writes a safetensors file: the tensors in the order of the reference
// implementation (by type, widest first, then by name), which aligns each to its
// elements, and meta, sorted by key, as __metadata__ (left out when nil). The
// header is padded with spaces to a multiple of 8 bytes, so the same arguments
// give the same bytes. Data goes from Entry.Data to w without a copy.
//
// Everything is checked before the first byte is written: types must belong to
// the format, data must have the size of its shape, names must be valid UTF-8,
// unique, and neither empty nor "__metadata__".
func Write(w io.Writer, tensors []Entry, meta map[string]string) error {
	order := slices.Clone(tensors)
	slices.SortStableFunc(order, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(b.Type, a.Type), cmp.Compare(a.Name, b.Name))
	})
	head, err := stHeader(order, meta)
	if err != nil {
		return fmt.Errorf("checkpoint: write safetensors: %w", err)
	}
	if _, err := w.Write(head); err != nil {
		return fmt.Errorf("checkpoint: write safetensors header: %w", err)
	}
	for _, t := range order {
		if _, err := w.Write(t.Data); err != nil {
			return fmt.Errorf("checkpoint: write tensor %q: %w", clip(t.Name), err)
		}
	}
	return nil
}

func stHeader(order []Entry, meta map[string]string) ([]byte, error) {
	b := append(make([]byte, 8), '{')
	if meta != nil {
		b = append(b, `"__metadata__":{`...)
		for i, k := range slices.Sorted(maps.Keys(meta)) {
			if len(k) > maxName {
				return nil, fmt.Errorf("metadata key of %d bytes, at most %d are allowed", len(k), maxName)
			}
			if !utf8.ValidString(k) || !utf8.ValidString(meta[k]) {
				return nil, fmt.Errorf("metadata %q is not valid UTF-8", clip(k))
			}
			if i > 0 {
				b = append(b, ',')
			}
			b = appendString(append(appendString(b, k), ':'), meta[k])
		}
		b = append(b, '}')
	}
	seen, at := make(map[string]bool), 0
	for i, t := range order {
		if err := t.check(); err != nil {
			return nil, err
		}
		if !t.Type.is(inST) {
			return nil, fmt.Errorf("tensor %q: type %v has no place in safetensors, write a GGUF file", clip(t.Name), t.Type)
		}
		if len(t.Shape) > maxRank {
			return nil, fmt.Errorf("tensor %q: %d dimensions, at most %d are allowed", clip(t.Name), len(t.Shape), maxRank)
		}
		if err := checkName(seen, t.Name); err != nil {
			return nil, err
		}
		if i > 0 || meta != nil {
			b = append(b, ',')
		}
		b = append(appendString(b, t.Name), `:{"dtype":"`...)
		b = append(append(b, t.Type.String()...), `","shape":[`...)
		for j, d := range t.Shape {
			if j > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendInt(b, int64(d), 10)
		}
		b = strconv.AppendInt(append(b, `],"data_offsets":[`...), int64(at), 10)
		at += len(t.Data)
		b = append(strconv.AppendInt(append(b, ','), int64(at), 10), `]}`...)
	}
	b = append(b, '}')
	for len(b)%8 != 0 {
		b = append(b, ' ')
	}
	if len(b)-8 > maxHeader {
		return nil, fmt.Errorf("header of %d bytes, at most %d are allowed", len(b)-8, maxHeader)
	}
	binary.LittleEndian.PutUint64(b, uint64(len(b)-8))
	return b, nil
}

func checkName(seen map[string]bool, name string) error {
	switch {
	case name == "" || name == "__metadata__" || len(name) > maxName || !utf8.ValidString(name):
		return fmt.Errorf("tensor name %q cannot be written", clip(name))
	case seen[name]:
		return fmt.Errorf("two tensors named %q", clip(name))
	}
	seen[name] = true
	return nil
}

// appendString quotes as the reference implementation does: only what JSON
// demands is escaped.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\b':
			b = append(b, `\b`...)
		case '\f':
			b = append(b, `\f`...)
		case '\n':
			b = append(b, `\n`...)
		case '\r':
			b = append(b, `\r`...)
		case '\t':
			b = append(b, `\t`...)
		default:
			if c < ' ' {
				b = append(b, `\u00`...)
				b = append(b, hex[c>>4], hex[c&15])
			} else {
				b = append(b, c)
			}
		}
	}
	return append(b, '"')
}

package checkpoint

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const testdata = "../testdata/models"

// st makes the bytes of a safetensors file from the text of its header.
func st(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, data)...)
}

// gg builds GGUF files field by field, well-formed or not.
type gg struct{ b []byte }

func newGG(version uint32, tensors, pairs uint64) *gg {
	g := &gg{[]byte("GGUF")}
	return g.u32(version).u64(tensors).u64(pairs)
}
func (g *gg) u32(v uint32) *gg    { g.b = binary.LittleEndian.AppendUint32(g.b, v); return g }
func (g *gg) u64(v uint64) *gg    { g.b = binary.LittleEndian.AppendUint64(g.b, v); return g }
func (g *gg) bytes(v ...byte) *gg { g.b = append(g.b, v...); return g }
func (g *gg) str(s string) *gg    { g.u64(uint64(len(s))); g.b = append(g.b, s...); return g }
func (g *gg) info(name string, typ uint32, offset uint64, dims ...uint64) *gg {
	g.str(name).u32(uint32(len(dims)))
	for _, d := range dims {
		g.u64(d)
	}
	return g.u32(typ).u64(offset)
}

// data pads to 32 bytes and appends n zeros.
func (g *gg) data(n int) []byte {
	g.b = append(g.b, make([]byte, pad(len(g.b), 32)+n)...)
	return g.b
}

func writeFile(t *testing.T, path string, b []byte) string {
	t.Helper()
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func mustOpen(t *testing.T, path string) *Set {
	t.Helper()
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// entries returns all tensors in file order.
func entries(t *testing.T, s *Set) []Entry {
	t.Helper()
	var out []Entry
	for _, in := range s.Infos() {
		e, err := s.Tensor(in.Name)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

func golden(t *testing.T, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(testdata, pattern))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no file matches %s (%v)", pattern, err)
	}
	return paths
}

func stBytes(t testing.TB, tensors []Entry, meta map[string]string) []byte {
	t.Helper()
	var buf bytes.Buffer
	if err := Write(&buf, tensors, meta); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func ggufBytes(t testing.TB, tensors []Entry, meta []KV) []byte {
	t.Helper()
	var buf bytes.Buffer
	if err := WriteGGUF(&buf, tensors, meta); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func wantMessage(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q lacks %q", err, p)
		}
	}
}

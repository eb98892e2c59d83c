package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"testing"
)

// checkContents holds the promises of the parsers about a file they accepted.
func checkContents(t *testing.T, c *contents, b []byte) {
	t.Helper()
	names, at := make(map[string]bool), int64(0)
	for _, r := range c.records {
		if r.Name == "" || names[r.Name] {
			t.Fatalf("name %q is empty or twice there", r.Name)
		}
		names[r.Name] = true
		if r.Offset < at || r.Bytes < 0 || r.Bytes > int64(len(b))-r.Offset {
			t.Fatalf("tensor %q: %d bytes at %d in a file of %d, the one before ends at %d", r.Name, r.Bytes, r.Offset, len(b), at)
		}
		at = r.Offset + r.Bytes
		if err := (Entry{r.Name, r.Type, r.Shape, b[r.Offset:at]}).check(); err != nil {
			t.Fatal(err)
		}
	}
}

// parseBounded parses and checks the error and the memory used.
func parseBounded(t *testing.T, b []byte, parse func(string, []byte) (*contents, error)) *contents {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c, err := parse("fuzz", b)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20+uint64(len(b))*16 {
		t.Fatalf("%d bytes allocated for a file of %d", n, len(b))
	}
	if err != nil {
		if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrUnsupported) {
			t.Fatalf("error without a sentinel: %v", err)
		}
		return nil
	}
	checkContents(t, c, b)
	return c
}

func (c *contents) entries(b []byte) []Entry {
	var out []Entry
	for _, r := range c.records {
		out = append(out, Entry{r.Name, r.Type, r.Shape, b[r.Offset : r.Offset+r.Bytes]})
	}
	return out
}

func FuzzSafetensors(f *testing.F) {
	for _, c := range hostileSafetensors() {
		if len(c.file) < 4096 {
			f.Add(c.file)
		}
	}
	f.Add(stBytes(f, []Entry{{"w", F32, []int{2, 3}, make([]byte, 24)}, {"é\n", BF16, []int{}, []byte{1, 2}}, {"z", BOOL, []int{0}, nil}}, map[string]string{"a": "b", "\"": "\u0001"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := parseBounded(t, b, parseSafetensors)
		if c == nil {
			return
		}
		if len(c.metadata) == 0 {
			c.metadata = nil
		}
		again := stBytes(t, c.entries(b), c.metadata)
		d, err := parseSafetensors("again", again)
		if err != nil {
			t.Fatalf("what was written from an accepted file: %v", err)
		}
		sameEntries(t, d.entries(again), c.entries(b))
		if !reflect.DeepEqual(d.metadata, c.metadata) {
			t.Fatalf("metadata %v, want %v", d.metadata, c.metadata)
		}
	})
}

func FuzzGGUF(f *testing.F) {
	for _, c := range hostileGGUF() {
		f.Add(c.file)
	}
	f.Add(ggufBytes(f, []Entry{{"w", F32, []int{2, 3}, make([]byte, 24)}, {"q", Q8_0, []int{1, 32}, make([]byte, 34)}},
		[]KV{{"general.alignment", uint32(64)}, {"a", []string{"x", ""}}, {"b", []bool{true}}, {"c", "text"}, {"d", 1.5}, {"e", []int16{1, 2}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := parseBounded(t, b, parseGGUF)
		if c == nil {
			return
		}
		var kv []KV
		for _, k := range c.meta.Keys() {
			v, err := c.meta.Value(k)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = c.meta.Int(k)
			_, _ = c.meta.Ints(k)
			_, _ = c.meta.Floats(k)
			kv = append(kv, KV{k, v})
		}
		if c.meta.Has("__metadata__") || slices.ContainsFunc(c.records, func(r record) bool { return r.Name == "__metadata__" }) {
			return // a name the writer does not take
		}
		again := ggufBytes(t, c.entries(b), kv)
		d, err := parseGGUF("again", again)
		if err != nil {
			t.Fatalf("what was written from an accepted file: %v", err)
		}
		sameEntries(t, d.entries(again), c.entries(b))
		for i, k := range d.meta.Keys() {
			if d.meta.Kind(k) != c.meta.Kind(k) || kv[i].Key != k || !bytes.Equal(d.meta.kv[k].raw, c.meta.kv[k].raw) {
				t.Fatalf("pair %q changed", k)
			}
		}
	})
}

func FuzzIndex(f *testing.F) {
	for _, s := range []string{
		`{"weight_map":{"a":"x.safetensors","b":"y.safetensors"}}`, `{"metadata":{"total_size":1e3,"x":[null,true,-0.5]},"weight_map":{"a":"x.safetensors"}}`,
		`{"weight_map":{"a":"../x.safetensors"}}`, `{"weight_map":{"a":"x.safetensors","a":"x.safetensors"}}`, `{"weight_map":{"a":""}}`, `{}`, ``, `[[[[`,
		`{"weight_map":{"\u0061\ud83d\ude00":"\u0078.safetensors"}}`,
	} {
		f.Add([]byte(s))
	}
	b, err := os.ReadFile(filepath.Join(testdata, "checkpoints/qwen3-untied-bf16", indexName))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		weights, err := parseIndex("fuzz", b)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("error without a sentinel: %v", err)
			}
			return
		}
		for name, file := range weights {
			if filepath.Base(file) != file || filepath.Ext(file) != ".safetensors" || !filepath.IsLocal(file) {
				t.Fatalf("tensor %q is in %q", name, file)
			}
		}
	})
}

func sameEntries(t *testing.T, got, want []Entry) {
	t.Helper()
	byName := func(s []Entry) map[string]Entry {
		m := make(map[string]Entry)
		for _, e := range s {
			m[e.Name] = e
		}
		return m
	}
	g, w := byName(got), byName(want)
	if len(g) != len(w) || len(got) != len(want) {
		t.Fatalf("%d tensors, want %d", len(g), len(w))
	}
	for name, e := range w {
		if o := g[name]; o.Type != e.Type || !slices.Equal(o.Shape, e.Shape) || !bytes.Equal(o.Data, e.Data) {
			t.Fatalf("tensor %q: %v %v, want %v %v, or other data", name, o.Type, o.Shape, e.Type, e.Shape)
		}
	}
}

// Both writers and readers are inverse to each other on 200 random plans.
func TestRoundTrip(t *testing.T) {
	const seed = 20
	names := []string{"w", "model.layers.0.mlp.gate_proj.weight", "é\"\\\n", "\x01", "😀", "__meta", "a b"}
	for plan := range 200 {
		rng := rand.New(rand.NewPCG(seed, uint64(plan)))
		gguf := plan%2 == 1
		var tensors []Entry
		for i := range rng.IntN(9) {
			typ := Type(1 + rng.IntN(int(typeCount)-1))
			if gguf && !typ.is(inGGUF) || !gguf && !typ.is(inST) {
				continue
			}
			shape := make([]int, rng.IntN(5))
			for j := range shape {
				shape[j] = rng.IntN(5)
			}
			values, size := typ.Block()
			if gguf {
				if len(shape) == 0 {
					shape = []int{1}
				}
				for j := range shape {
					shape[j]++
				}
			}
			if len(shape) > 0 {
				shape[len(shape)-1] *= values
			} else if values > 1 {
				continue
			}
			n, _ := mulDims(shape)
			data := make([]byte, int(n)/values*size)
			for j := range data {
				data[j] = byte(rng.Uint32())
			}
			tensors = append(tensors, Entry{fmt.Sprint(names[rng.IntN(len(names))], i), typ, shape, data})
		}
		path := filepath.Join(t.TempDir(), "plan")
		var want map[string]string
		if gguf {
			writeFile(t, path, ggufBytes(t, tensors, []KV{{"general.alignment", uint32(8) << rng.IntN(5)}, {"k", []string{"a", ""}}}))
		} else {
			if rng.IntN(2) == 0 {
				want = map[string]string{"k": names[rng.IntN(len(names))], names[rng.IntN(len(names))]: ""}
			}
			b := stBytes(t, tensors, want)
			reversed := slices.Clone(tensors)
			slices.Reverse(reversed)
			if !bytes.Equal(b, stBytes(t, reversed, want)) {
				t.Errorf("seed %d plan %d: the order of the arguments changes the file", seed, plan)
			}
			writeFile(t, path, b)
		}
		s := mustOpen(t, path)
		if !reflect.DeepEqual(s.Metadata(), want) {
			t.Errorf("seed %d plan %d: metadata %v, want %v", seed, plan, s.Metadata(), want)
		}
		for _, e := range tensors {
			in, ok := s.Info(e.Name)
			if !ok || in.Type != e.Type || !slices.Equal(in.Shape, e.Shape) {
				t.Fatalf("seed %d plan %d: %q is %v, want %v %v", seed, plan, e.Name, in, e.Type, e.Shape)
			}
			got := s.files[0].data[in.Offset : in.Offset+in.Bytes]
			if !bytes.Equal(got, e.Data) {
				t.Fatalf("seed %d plan %d: data of %q differs", seed, plan, e.Name)
			}
			if o, err := s.Tensor(e.Name); e.Type.Opens() && (err != nil || !bytes.Equal(o.Data, e.Data)) {
				t.Fatalf("seed %d plan %d: %q: %v", seed, plan, e.Name, err)
			}
		}
		s.Close()
	}
}

// The writers refuse what Open would refuse, before they write a byte.
func TestWriteRefuses(t *testing.T) {
	f32 := func(name string, n int, shape ...int) Entry { return Entry{name, F32, shape, make([]byte, n)} }
	for name, tensors := range map[string][]Entry{
		"size":       {f32("w", 4, 2)},
		"negative":   {f32("w", 0, -1)},
		"overflow":   {f32("w", 0, 1<<31-1, 1<<31-1, 1<<31-1)},
		"duplicate":  {f32("w", 4, 1), f32("w", 4, 1)},
		"empty name": {f32("", 4, 1)},
		"reserved":   {f32("__metadata__", 4, 1)},
		"UTF-8":      {f32("\xff", 4, 1)},
		"long name":  {f32(string(make([]byte, 5000)), 4, 1)},
		"type":       {{"w", Invalid, []int{1}, nil}},
		"past types": {{"w", 200, []int{1}, nil}},
	} {
		var buf bytes.Buffer
		if err := Write(&buf, tensors, nil); err == nil || buf.Len() > 0 {
			t.Errorf("Write, %s: %v, %d bytes", name, err, buf.Len())
		}
		if err := WriteGGUF(&buf, tensors, nil); err == nil || buf.Len() > 0 {
			t.Errorf("WriteGGUF, %s: %v, %d bytes", name, err, buf.Len())
		}
	}
	var buf bytes.Buffer
	wantMessage(t, Write(&buf, []Entry{{"w", Q4_0, []int{32}, make([]byte, 18)}}, nil), `"w"`, "Q4_0", "GGUF")
	control := string(bytes.Repeat([]byte{1}, 4096)) // six times as long in the file
	if _, err := parseSafetensors("long", stBytes(t, []Entry{f32(control, 4, 1)}, map[string]string{control: control})); err != nil {
		t.Errorf("longest name, all escaped: %v", err)
	}
	wantMessage(t, Write(&buf, nil, map[string]string{"k": "\xff"}), "UTF-8")
	wantMessage(t, WriteGGUF(&buf, []Entry{{"w", U16, []int{1}, make([]byte, 2)}}, nil), `"w"`, "U16")
	wantMessage(t, WriteGGUF(&buf, []Entry{{"w", Q4_0, []int{2, 16}, make([]byte, 18)}}, nil), "rows of 16")
	wantMessage(t, WriteGGUF(&buf, []Entry{{"w", F32, []int{1, 1, 1, 1, 1}, make([]byte, 4)}}, nil), "1 to 4")
	wantMessage(t, WriteGGUF(&buf, []Entry{{"w", F32, []int{0}, nil}}, nil), "at least 1")
	wantMessage(t, WriteGGUF(&buf, nil, []KV{{"k", 1}}), `"k"`, "int")
	wantMessage(t, WriteGGUF(&buf, nil, []KV{{"k", uint8(1)}, {"k", uint8(1)}}), `"k"`)
	wantMessage(t, WriteGGUF(&buf, nil, []KV{{"general.alignment", uint32(24)}}), "24")
	wantMessage(t, WriteGGUF(&buf, nil, []KV{{"general.alignment", int32(32)}}), "uint32")
	if buf.Len() > 0 {
		t.Errorf("%d bytes written", buf.Len())
	}
}

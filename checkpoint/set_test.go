package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
)

// modelDir writes a directory with a config and the given files.
func modelDir(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, configName), []byte(`{"model_type":"toy"}`))
	for name, b := range files {
		writeFile(t, filepath.Join(dir, name), b)
	}
	return dir
}

func TestDirectories(t *testing.T) {
	a := stBytes(t, []Entry{{"a", U8, []int{3}, []byte{1, 2, 3}}}, map[string]string{"format": "pt"})
	b := stBytes(t, []Entry{{"b", I16, []int{1, 2}, []byte{1, 0, 2, 0}}}, nil)
	ab := stBytes(t, []Entry{{"a", U8, []int{3}, []byte{1, 2, 3}}, {"b", U8, []int{1}, []byte{4}}}, nil)
	index := func(weights string) []byte {
		return []byte(`{"metadata":{"total_size":7},"weight_map":{` + weights + `}}`)
	}
	good := index(`"a":"x.safetensors","b":"y.safetensors"`)
	tests := []struct {
		name  string
		files map[string][]byte
		want  []string // parts of the error; none: opens
		is    error
	}{
		{"single", map[string][]byte{singleName: a}, nil, nil},
		{"shards", map[string][]byte{indexName: good, "x.safetensors": a, "y.safetensors": b}, nil, nil},
		{"index wins", map[string][]byte{indexName: good, "x.safetensors": a, "y.safetensors": b, singleName: []byte("broken")}, nil, nil},
		{"nothing", nil, []string{"neither", singleName, indexName}, fs.ErrNotExist},
		{"config broken", map[string][]byte{singleName: a, configName: []byte(`{"a":`)}, []string{configName, "invalid JSON"}, ErrCorrupt},
		{"generation config broken", map[string][]byte{singleName: a, generationName: []byte(`x`)}, []string{generationName, "invalid JSON"}, ErrCorrupt},
		{"shard missing", map[string][]byte{indexName: good, "x.safetensors": a}, []string{"y.safetensors", "missing", "download"}, fs.ErrNotExist},
		{"shard cut", map[string][]byte{indexName: good, "x.safetensors": a, "y.safetensors": b[:len(b)-1]}, []string{"y.safetensors", "3 bytes of data"}, ErrCorrupt},
		{"shard empty", map[string][]byte{indexName: good, "x.safetensors": a, "y.safetensors": {}}, []string{"y.safetensors", "empty"}, ErrCorrupt},
		{"tensor missing in shard", map[string][]byte{indexName: index(`"a":"x.safetensors","c":"x.safetensors"`), "x.safetensors": a}, []string{`"c"`, "missing"}, ErrCorrupt},
		{"tensor missing in index", map[string][]byte{indexName: index(`"a":"x.safetensors"`), "x.safetensors": ab}, []string{`"b"`, indexName}, ErrCorrupt},
		{"tensor in two shards", map[string][]byte{indexName: good, "x.safetensors": ab, "y.safetensors": b}, []string{`"b"`, "x.safetensors"}, ErrCorrupt},
		{"parent", map[string][]byte{indexName: index(`"a":"../x.safetensors"`)}, []string{"../x.safetensors", "plain name"}, ErrCorrupt},
		{"absolute", map[string][]byte{indexName: index(`"a":"/etc/x.safetensors"`)}, []string{"plain name"}, ErrCorrupt},
		{"folder", map[string][]byte{indexName: index(`"a":"sub/x.safetensors"`)}, []string{"plain name"}, ErrCorrupt},
		{"backslash", map[string][]byte{indexName: index(`"a":"..\\x.safetensors"`)}, []string{"plain name"}, ErrCorrupt},
		{"drive", map[string][]byte{indexName: index(`"a":"C:x.safetensors"`)}, []string{"plain name"}, ErrCorrupt},
		{"other kind of file", map[string][]byte{indexName: index(`"a":"config.json"`)}, []string{"plain name"}, ErrCorrupt},
		{"empty file name", map[string][]byte{indexName: index(`"a":""`)}, []string{"plain name"}, ErrCorrupt},
		{"GGUF as shard", map[string][]byte{indexName: good, "x.safetensors": a, "y.safetensors": newGG(3, 0, 0).data(32)}, []string{"GGUF"}, ErrCorrupt},
		{"duplicate in index", map[string][]byte{indexName: index(`"a":"x.safetensors","a":"x.safetensors"`), "x.safetensors": a}, []string{"duplicate key", `"a"`}, ErrCorrupt},
		{"two weight maps", map[string][]byte{indexName: []byte(`{"weight_map":{},"weight_map":{}}`)}, []string{"duplicate key"}, ErrCorrupt},
		{"no weight map", map[string][]byte{indexName: []byte(`{"metadata":{}}`)}, []string{"weight_map"}, ErrCorrupt},
		{"empty weight map", map[string][]byte{indexName: index("")}, []string{"weight_map"}, ErrCorrupt},
		{"file is a number", map[string][]byte{indexName: index(`"a":1`)}, []string{"JSON byte"}, ErrCorrupt},
		{"deep", map[string][]byte{indexName: []byte(`{"metadata":` + strings.Repeat("[", 100000))}, []string{"nested"}, ErrCorrupt},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := Open(modelDir(t, tt.files))
			if tt.want != nil {
				wantMessage(t, err, append(tt.want, "checkpoint: ")...)
				if !errors.Is(err, tt.is) {
					t.Errorf("%v does not wrap %q", err, tt.is)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if e, err := s.Tensor("a"); err != nil || !bytes.Equal(e.Data, []byte{1, 2, 3}) {
				t.Errorf("a = %v, %v", e, err)
			}
			if s.Summary().Architecture != "toy" || s.Metadata()["format"] != "pt" || s.GenerationConfig() != nil {
				t.Errorf("summary %+v, metadata %v", s.Summary(), s.Metadata())
			}
		})
	}
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, singleName), a)
	_, err := Open(dir)
	wantMessage(t, err, configName)
	_, err = Open(filepath.Join(dir, "absent.gguf"))
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent file: %v", err)
	}
}

func TestTensorErrorsAndClose(t *testing.T) {
	dir := t.TempDir()
	path := writeFile(t, filepath.Join(dir, "m.gguf"), ggufBytes(t,
		[]Entry{{"w", F32, []int{2}, make([]byte, 8)}, {"iq", IQ4_XS, []int{1, 256}, make([]byte, 136)}},
		[]KV{{"general.architecture", "toy"}, {"list", []string{"x", "", "yz"}}}))
	s := mustOpen(t, path)
	if _, err := s.Tensor("nope"); !errors.Is(err, ErrNoTensor) {
		t.Errorf("unknown name: %v", err)
	}
	_, err := s.Tensor("iq")
	if !errors.Is(err, ErrUnsupported) {
		t.Errorf("listed type: %v", err)
	}
	wantMessage(t, err, `"iq"`, "IQ4_XS")
	want := Summary{Format: GGUF, Architecture: "toy", Tensors: 2, Parameters: 258, Bytes: 144,
		Types: []TypeSummary{{F32, 1, 2, 8}, {IQ4_XS, 1, 256, 136}},
		Files: []FileSummary{{"m.gguf", 2, s.Summary().Files[0].Bytes}}}
	if diff := cmp.Diff(want, s.Summary()); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
	meta, kept := s.Meta, s.Names()
	list, err := meta.Strings("list")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"x", "", "yz"}, list); diff != "" || len(kept) != 2 {
		t.Errorf("after Close: %v %v", list, kept)
	}
	if _, err := s.Tensor("w"); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Tensor after Close: %v", err)
	}
	if _, err := meta.Strings("list"); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Meta after Close: %v", err)
	}
	s.Release(Entry{Data: make([]byte, 4)})
	s.Sequential()
}

func TestMeta(t *testing.T) {
	kv := []KV{
		{"u8", uint8(255)}, {"i8", int8(-128)}, {"u16", uint16(65535)}, {"i16", int16(-2)}, {"u32", uint32(math.MaxUint32)},
		{"i32", int32(-3)}, {"u64", uint64(1) << 40}, {"i64", int64(-4)}, {"big", uint64(math.MaxUint64)},
		{"f32", float32(0.1)}, {"f64", 0.1}, {"yes", true}, {"no", false}, {"text", "a\x00\xff"},
		{"ints", []int32{1, -2}}, {"bytes", []uint8{3, 4}}, {"wide", []uint64{5, math.MaxUint64}}, {"bools", []bool{true, false}},
		{"texts", []string{"", "b"}}, {"floats", []float32{1, 2}}, {"doubles", []float64{3}}, {"i8s", []int8{-1}},
		{"u16s", []uint16{7}}, {"i16s", []int16{-7}}, {"u32s", []uint32{8}}, {"i64s", []int64{-9}}, {"none", []float64{}},
	}
	s := mustOpen(t, writeFile(t, filepath.Join(t.TempDir(), "m.gguf"), ggufBytes(t, nil, kv)))
	m := s.Meta
	for i, k := range m.Keys() {
		v, err := m.Value(k)
		if diff := cmp.Diff(kv[i], KV{k, v}); diff != "" || err != nil {
			t.Errorf("pair %d (-want +got): %s %v", i, diff, err)
		}
	}
	for k, want := range map[string]int{"u8": 255, "i8": -128, "u16": 65535, "i16": -2, "i32": -3, "i64": -4} {
		if got, err := m.Int(k); got != want || err != nil {
			t.Errorf("Int(%q) = %d, %v, want %d", k, got, err, want)
		}
	}
	if math.MaxInt > math.MaxInt32 {
		if got, err := m.Int("u32"); int64(got) != math.MaxUint32 || err != nil {
			t.Errorf("u32 = %d, %v", got, err)
		}
	}
	_, err := m.Int("big")
	wantMessage(t, err, "big", "18446744073709551615")
	_, err = m.Ints("wide")
	wantMessage(t, err, "wide", "18446744073709551615")
	if got, err := m.Ints("ints"); !cmp.Equal(got, []int{1, -2}) || err != nil {
		t.Errorf("ints = %v, %v", got, err)
	}
	if got, err := m.Float("f32"); got != float64(float32(0.1)) || err != nil {
		t.Errorf("f32 = %v, %v", got, err)
	}
	if got, err := m.Floats("doubles"); !cmp.Equal(got, []float64{3}) || err != nil {
		t.Errorf("doubles = %v, %v", got, err)
	}
	if got, err := m.String("text"); got != "a\x00\xff" || err != nil {
		t.Errorf("text = %q, %v", got, err)
	}
	if got, err := m.Bools("bools"); !cmp.Equal(got, []bool{true, false}) || err != nil {
		t.Errorf("bools = %v, %v", got, err)
	}
	if m.Kind("texts") != "array of 2 string" || m.Kind("f32") != "f32" || m.Kind("absent") != "" || !m.Has("yes") || m.Has("absent") {
		t.Error("Kind or Has")
	}
	wrong := map[string]error{}
	_, wrong["int of a float"] = m.Int("f32")
	_, wrong["int of an array"] = m.Int("ints")
	_, wrong["ints of an int"] = m.Ints("u8")
	_, wrong["ints of floats"] = m.Ints("floats")
	_, wrong["float of an int"] = m.Float("u8")
	_, wrong["floats of ints"] = m.Floats("ints")
	_, wrong["bool of an int"] = m.Bool("u8")
	_, wrong["bools of ints"] = m.Bools("ints")
	_, wrong["string of an int"] = m.String("u8")
	_, wrong["strings of ints"] = m.Strings("ints")
	_, wrong["strings of a string"] = m.Strings("text")
	for name, err := range wrong {
		if err == nil || errors.Is(err, ErrNoKey) {
			t.Errorf("%s: %v", name, err)
		} else {
			wantMessage(t, err, "m.gguf", "wanted")
		}
	}
	if _, err := m.Int("absent"); !errors.Is(err, ErrNoKey) {
		t.Errorf("absent: %v", err)
	}
	if _, err := (Meta{}).Int("k"); !errors.Is(err, ErrNoKey) {
		t.Errorf("zero Meta: %v", err)
	}
}

// A tensor that its file stores misaligned comes out aligned, with its bytes.
func TestMisalignedTensor(t *testing.T) {
	b := st(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}}`, 9)
	for i := range 9 {
		b[len(b)-9+i] = byte(i)
	}
	s := mustOpen(t, writeFile(t, filepath.Join(t.TempDir(), "m.safetensors"), b))
	e, err := s.Tensor("b")
	if err != nil || !bytes.Equal(e.Data, []byte{1, 2, 3, 4, 5, 6, 7, 8}) {
		t.Fatalf("%v, %v", e, err)
	}
	if uintptr(unsafe.Pointer(&e.Data[0]))%4 != 0 {
		t.Error("misaligned")
	}
	s.Release(e) // of a copy: nothing
	s.WillNeed(e)
}

// Releasing gives memory back and changes no byte, whatever part is named.
func TestRelease(t *testing.T) {
	const n = 16 << 20
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(i * 7 >> 3)
	}
	path := writeFile(t, filepath.Join(t.TempDir(), "big.safetensors"), stBytes(t, []Entry{{"a", U8, []int{n / 2}, data[:n/2]}, {"b", U8, []int{n / 2}, data[n/2:]}}, nil))
	s := mustOpen(t, path)
	s.Sequential()
	a, _ := s.Tensor("a")
	b, _ := s.Tensor("b")
	s.WillNeed(a)
	same := func() {
		t.Helper()
		if !bytes.Equal(a.Data, data[:n/2]) || !bytes.Equal(b.Data, data[n/2:]) {
			t.Fatal("bytes changed")
		}
	}
	same()
	full := residentBytes(t)
	s.Release(a)
	s.Release(b)
	if free := residentBytes(t); full > 0 && !testing.Short() && full-free < n*9/10 {
		t.Errorf("resident %d bytes before, %d after the release of %d", full, free, n)
	}
	same()
	for _, cut := range []int{0, 1, 4095, 4096, 4097, 100000} { // parts
		s.Release(Entry{Data: a.Data[cut : cut+12345]})
		s.WillNeed(Entry{Data: b.Data[len(b.Data)-cut:]})
	}
	same()
}

// residentBytes is the resident set of the process, 0 where it is not known.
func residentBytes(t *testing.T) int {
	t.Helper()
	if runtime.GOOS != "linux" {
		return 0
	}
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	pages, err := strconv.Atoi(strings.Fields(string(b))[1])
	if err != nil {
		return 0
	}
	return pages * os.Getpagesize()
}

func TestConcurrentReaders(t *testing.T) {
	s := mustOpen(t, filepath.Join(testdata, "checkpoints/qwen3-untied-bf16"))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for _, n := range s.Names() {
				e, err := s.Tensor(n)
				if err == nil {
					_, err = e.Float32s()
				}
				if err != nil {
					t.Error(err)
				}
				s.Release(e)
			}
		})
	}
	wg.Wait()
}

func TestWidenHalf(t *testing.T) {
	for h := range 1 << 16 {
		exp, frac := h>>10&31, float64(h&0x3ff)
		want := math.Ldexp(1+frac/1024, exp-15)
		switch {
		case exp == 0:
			want = math.Ldexp(frac, -24)
		case exp == 31 && frac == 0:
			want = math.Inf(1)
		case exp == 31:
			want = math.NaN()
		}
		if h>>15 == 1 {
			want = math.Copysign(want, -1)
		}
		got := widenHalf(uint16(h))
		if want != want && got != got {
			continue
		}
		if math.Float32bits(got) != math.Float32bits(float32(want)) {
			t.Fatalf("half %#04x = %v, want %v", h, got, want)
		}
	}
}

func TestDecode(t *testing.T) {
	for _, tt := range []struct {
		e    Entry
		want string
	}{
		{Entry{"w", I8, []int{2}, []byte{0xff, 1}}, "[-1 1]"},
		{Entry{"w", U8, []int{2}, []byte{0xff, 1}}, "[255 1]"},
		{Entry{"w", BOOL, []int{2}, []byte{0, 1}}, "[0 1]"},
		{Entry{"w", I16, []int{1}, []byte{0xfe, 0xff}}, "[-2]"},
		{Entry{"w", U16, []int{1}, []byte{0xfe, 0xff}}, "[65534]"},
		{Entry{"w", I32, []int{}, []byte{0xfe, 0xff, 0xff, 0xff}}, "[-2]"},
		{Entry{"w", U32, []int{1}, []byte{0xfe, 0xff, 0xff, 0xff}}, "[4294967294]"},
		{Entry{"w", I64, []int{1}, []byte{0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}, "[-2]"},
		{Entry{"w", U64, []int{1}, []byte{1, 0, 0, 0, 0, 0, 0, 0}}, "[1]"},
	} {
		got, err := tt.e.Int64s()
		if fmt.Sprint(got) != tt.want || err != nil {
			t.Errorf("%v: %v, %v, want %s", tt.e.Type, got, err, tt.want)
		}
	}
	_, err := Entry{"w", U64, []int{1}, bytes.Repeat([]byte{0xff}, 8)}.Int64s()
	wantMessage(t, err, "beyond int64")
	_, err = Entry{"w", F32, []int{2}, make([]byte, 4)}.Float32s()
	wantMessage(t, err, `"w"`, "4 bytes", "needs 8")
	_, err = Entry{"w", Q4_0, []int{32}, make([]byte, 18)}.Float64s()
	wantMessage(t, err, `"w"`, "Q4_0")
	v, err := Entry{"w", BF16, []int{1}, []byte{0x80, 0x3f}}.Float64s()
	if err != nil || v[0] != 1 {
		t.Errorf("%v, %v", v, err)
	}
}

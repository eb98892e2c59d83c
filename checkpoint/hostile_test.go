package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

type hostile struct {
	name string
	file []byte
	why  string
	want []string // parts of the message
	is   error    // ErrCorrupt when nil
}

func hostileSafetensors() []hostile {
	prefix := func(n uint64, rest string) []byte {
		return append(binary.LittleEndian.AppendUint64(nil, n), rest...)
	}
	one := func(entry string) []byte { return st(`{"w":`+entry+`}`, 16) }
	two := func(a, b string, data int) []byte { return st(`{"a":`+a+`,"b":`+b+`}`, data) }
	f32 := func(shape string, begin, end uint64) string {
		return fmt.Sprintf(`{"dtype":"F32","shape":%s,"data_offsets":[%d,%d]}`, shape, begin, end)
	}
	ok := f32("[4]", 0, 16)
	return []hostile{
		{"short", []byte("{}"), "no length", []string{"2 bytes"}, nil},
		{"length max", prefix(math.MaxUint64, "{}"), "2^64-1", []string{"file has 10 bytes", "18446744073709551615", "download"}, nil},
		{"length 100000001", prefix(100000001, "{}"), "beyond the limit and the file", []string{"100000001"}, nil},
		{"length beyond file", append(prefix(99999, "{}"), make([]byte, 1014)...), "truncated", []string{"file has 1024 bytes", "says 99999", "download it again"}, nil},
		{"length one more", prefix(3, "{}"), "off by one", []string{"says 3"}, nil},
		{"length zero", prefix(0, "{}"), "empty header", []string{"not a safetensors file"}, nil},
		{"no object", prefix(8, "[      ]"), "array", []string{"'{'"}, nil},
		{"leading space", prefix(3, " {}"), "must begin with the brace", []string{"'{'"}, nil},
		{"open", prefix(1, "{"), "unfinished", []string{"JSON byte 1"}, nil},
		{"trailing text", st(`{} x`, 0), "only spaces may follow", []string{"after the end"}, nil},
		{"trailing NUL", st("{}\x00\x00", 0), "padding is spaces", []string{"after the end"}, nil},
		{"duplicate tensor", st(`{"key00":`+ok+`,"key00":`+ok+`}`, 16), "two entries of one name", []string{"duplicate key", `"key00"`}, nil},
		{"duplicate by escape", st(`{"a":`+ok+`,"\u0061":`+ok+`}`, 16), "same name, other spelling", []string{"duplicate key", `"a"`}, nil},
		{"duplicate metadata", st(`{"__metadata__":{},"__metadata__":{}}`, 0), "metadata twice", []string{"duplicate key"}, nil},
		{"duplicate in metadata", st(`{"__metadata__":{"k":"1","k":"2"}}`, 0), "key twice", []string{"duplicate key", `"k"`}, nil},
		{"duplicate dtype", one(`{"dtype":"F32","dtype":"F32","shape":[4],"data_offsets":[0,16]}`), "field twice", []string{"duplicate key", "dtype"}, nil},
		{"duplicate shape", one(`{"shape":[4],"dtype":"F32","shape":[4],"data_offsets":[0,16]}`), "field twice", []string{"duplicate key", "shape"}, nil},
		{"duplicate offsets", one(`{"data_offsets":[0,16],"dtype":"F32","shape":[4],"data_offsets":[0,16]}`), "field twice", []string{"duplicate key", "data_offsets"}, nil},
		{"metadata number", st(`{"__metadata__":{"k":1}}`, 0), "values are strings", []string{"__metadata__", "JSON byte"}[1:], nil},
		{"metadata list", st(`{"__metadata__":[]}`, 0), "an object", nil, nil},
		{"shape and offsets differ", st(`{"w":`+f32("[1000,1000]", 0, 4)+`}`, 4), "4 bytes for a million", []string{`"w"`, "hold 4 bytes", "[1000 1000]", "4000000"}, nil},
		{"unknown dtype", one(`{"dtype":"F33","shape":[4],"data_offsets":[18446744073709551608,8]}`), "must not skip the checks", []string{`"w"`, `unknown dtype "F33"`}, nil},
		{"offset wraps", one(`{"dtype":"F32","shape":[4],"data_offsets":[18446744073709551608,8]}`), "begin + 16 = 8 mod 2^64", []string{"18446744073709551608"}, nil},
		{"number beyond 2^64", one(f32("[18446744073709551616]", 0, 16)), "2^64", []string{"beyond 2^64"}, nil},
		{"shape overflow", one(f32("[4294967296,4294967296,4]", 0, 16)), "2^66", []string{"overflows"}, nil},
		{"size overflow", one(f32("[4611686018427387905]", 0, 4)), "(2^62+1)·4 = 4", []string{"4611686018427387905"}, nil},
		{"zero hides overflow", one(f32("[0,9223372036854775807,9223372036854775807]", 0, 0)), "product of the others", []string{"overflows"}, nil},
		{"dimension beyond int", one(f32("[9223372036854775808]", 0, 0)), "2^63", []string{"too large"}, nil},
		{"negative", one(f32("[-4]", 0, 16)), "sign", []string{"non-negative integer"}, nil},
		{"fraction", one(f32("[4.0]", 0, 16)), "no integers", []string{"non-negative integer"}, nil},
		{"exponent", one(f32("[4e0]", 0, 16)), "no integers", []string{"non-negative integer"}, nil},
		{"leading zero", one(f32("[04]", 0, 16)), "JSON", []string{"non-negative integer"}, nil},
		{"rank 17", one(f32("[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", 0, 4)), "bounded", []string{"more than 16"}, nil},
		{"reversed offsets", one(f32("[4]", 16, 0)), "end < begin", []string{"[16, 0]"}, nil},
		{"beyond data", one(f32("[8]", 0, 32)), "truncated", []string{"[0, 32]", "16 bytes of data"}, nil},
		{"three offsets", one(`{"dtype":"F32","shape":[4],"data_offsets":[0,16,16]}`), "a pair", []string{"more than two"}, nil},
		{"one offset", one(`{"dtype":"F32","shape":[4],"data_offsets":[0]}`), "a pair", []string{"not two"}, nil},
		{"no dtype", one(`{"shape":[4],"data_offsets":[0,16]}`), "missing", []string{`no "dtype"`}, nil},
		{"no shape", one(`{"dtype":"F32","data_offsets":[0,16]}`), "missing", []string{`no "shape"`}, nil},
		{"no offsets", one(`{"dtype":"F32","shape":[4]}`), "missing", []string{`no "data_offsets"`}, nil},
		{"unknown field", one(`{"dtype":"F32","shape":[4],"data_offsets":[0,16],"scale":2}`), "could change the meaning", []string{`unknown field "scale"`}, nil},
		{"dtype null", one(`{"dtype":null,"shape":[4],"data_offsets":[0,16]}`), "type", nil, nil},
		{"tensor is a list", one(`[]`), "type", nil, nil},
		{"empty name", st(`{"":`+ok+`}`, 16), "a name", []string{"empty name"}, nil},
		{"long name", st(`{"`+strings.Repeat("x", 4097)+`":`+ok+`}`, 16), "bounded", []string{"4097"}, nil},
		{"control character", st("{\"a\nb\":"+ok+"}", 16), "JSON", []string{"control character"}, nil},
		{"bad UTF-8", st("{\"\xff\":"+ok+"}", 16), "JSON", []string{"UTF-8"}, nil},
		{"lone surrogate", st(`{"\ud800":`+ok+`}`, 16), "no character", []string{"escape"}, nil},
		{"bad escape", st(`{"\x":`+ok+`}`, 16), "JSON", []string{"escape"}, nil},
		{"cut escape", st(`{"\`, 0), "JSON", []string{"escape"}, nil},
		{"trailing comma", st(`{"w":`+ok+`,}`, 16), "JSON", nil, nil},
		{"deep", st(`{"__metadata__":`+strings.Repeat(`{"a":`, 10000), 0), "stack", []string{"nested deeper"}, nil},
		{"deep list", st(`{"__metadata__":`+strings.Repeat(`[`, 100000), 0), "stack", []string{"nested deeper"}, nil},
		{"overlap", two(f32("[4]", 0, 16), f32("[4]", 8, 24), 24), "shared bytes", []string{`"b"`, `"a"`, "inside"}, nil},
		{"same range", two(f32("[4]", 0, 16), f32("[4]", 0, 16), 16), "shared bytes", []string{"inside"}, nil},
		{"hole", two(f32("[2]", 0, 8), f32("[2]", 12, 20), 20), "hidden bytes", []string{"hole of 4 bytes"}, nil},
		{"hole in front", one(f32("[2]", 8, 16)), "hidden bytes", []string{"hole of 8 bytes"}, nil},
		{"bytes behind", st(`{"w":`+ok+`}`, 17), "hidden bytes", []string{"1 bytes of data belong to no tensor"}, nil},
		{"data without tensors", st(`{}`, 8), "hidden bytes", []string{"8 bytes"}, nil},
		{"half a byte", one(`{"dtype":"F4","shape":[3],"data_offsets":[0,2]}`), "packed type", []string{"cannot be stored"}, nil},
		{"LFS pointer", []byte("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"), "not the weights", []string{"git lfs pull"}, nil},
		{"zip", []byte("PK\x03\x04................"), "a pickle", []string{"PyTorch"}, nil},
		{"html", []byte("<!DOCTYPE html><title>404</title>"), "a failed download", []string{"web page"}, nil},
	}
}

func hostileGGUF() []hostile {
	// One F32 tensor "w" with these dimensions, and 32 bytes of data.
	dims := func(d ...uint64) []byte { return newGG(3, 1, 0).info("w", 0, 0, d...).data(32) }
	rank := func(n uint32) []byte { return newGG(3, 1, 0).str("w").u32(n).data(96) }
	align := func(kind uint32, v uint32) []byte {
		return newGG(3, 0, 1).str("general.alignment").u32(kind).u32(v).data(32)
	}
	pair := func(f func(*gg)) []byte { g := newGG(3, 0, 1).str("k"); f(g); return g.data(32) }
	return []hostile{
		{"short", []byte("GGUF\x03\x00\x00\x00"), "no counts", []string{"8 bytes"}, nil},
		{"magic", append([]byte("GGUX"), make([]byte, 60)...), "other file", nil, nil},
		{"version 1", newGG(1, 0, 0).data(32), "32-bit counts", []string{"version 1"}, ErrUnsupported},
		{"version 4", newGG(4, 0, 0).data(32), "unknown", []string{"version 4"}, ErrUnsupported},
		{"version 0", newGG(0, 0, 0).data(32), "unknown", []string{"version 0"}, ErrUnsupported},
		{"big-endian", newGG(3<<24, 0, 0).data(32), "swapped version", []string{"big-endian"}, ErrUnsupported},
		{"dim 2^42+1", dims(4398046511105), "wraps a byte size", []string{`"w"`}, nil},
		{"dim 2^42+1 second", dims(8, 4398046511105), "wraps a byte size", []string{`"w"`}, nil},
		{"rank 2^32-1", rank(0xFFFFFFFF), "before the dims", []string{"4294967295 dimensions"}, nil},
		{"rank 1e6", rank(1000000), "before the dims", []string{"1000000 dimensions"}, nil},
		{"rank 9", rank(9), "fixed array", []string{"9 dimensions"}, nil},
		{"rank 5", rank(5), "fixed array", []string{"5 dimensions"}, nil},
		{"rank 0", rank(0), "no scalar", []string{"0 dimensions"}, nil},
		{"dim 0", dims(0), "division by zero", []string{"dimension 0 is 0"}, nil},
		{"dim 0 second", dims(8, 0), "division by zero", []string{"dimension 1 is 0"}, nil},
		{"product wraps to 1", dims(math.MaxUint64, 2, 1, 1), "2^64-1 · 2", []string{`"w"`}, nil},
		{"product wraps to 0", dims(1<<32, 1<<32, 1, 1), "2^64", []string{"overflow"}, nil},
		{"product wraps to 8", dims(1<<61+1, 8), "2^64 + 8", []string{"overflow"}, nil},
		{"size wraps", dims(1<<62+1, 1), "4·(2^62+1)", []string{"overflow"}, nil},
		{"alignment 2^30", align(kindU32, 1<<30), "padding beyond the file", []string{"1073741824"}, nil},
		{"alignment 3", align(kindU32, 3), "no power of two", []string{"power of two"}, nil},
		{"alignment 0", align(kindU32, 0), "division", []string{"power of two"}, nil},
		{"alignment 1", align(kindU32, 1), "views would be misaligned", []string{"from 8"}, nil},
		{"alignment i32", align(kindI32, 32), "type", []string{"i32"}, nil},
		{"alignment string", newGG(3, 0, 1).str("general.alignment").u32(kindString).str("32").data(32), "type", []string{"string"}, nil},
		{"string of 1 GiB", newGG(3, 0, 1).str("k").u32(kindString).u64(1 << 30).data(96), "from 160 bytes", []string{"1073741824"}, nil},
		{"string of 2^64-1", newGG(3, 0, 1).str("k").u32(kindString).u64(math.MaxUint64).data(96), "wraps", nil, nil},
		{"key of 1 GiB", newGG(3, 0, 1).u64(1 << 30).data(96), "bounded", []string{"1073741824"}, nil},
		{"key longer than file", newGG(3, 0, 1).u64(60000).data(96), "bounded", []string{"60000"}, nil},
		{"empty key", newGG(3, 0, 1).str("").u32(kindU8).bytes(1).data(52), "88-byte file", []string{"key", "0 bytes"}, nil},
		{"key not UTF-8", newGG(3, 0, 1).str("\xff").u32(kindU8).bytes(1).data(32), "names are text", []string{"UTF-8"}, nil},
		{"empty name", newGG(3, 1, 0).info("", 0, 0, 8).data(32), "a name", []string{"0 bytes"}, nil},
		{"duplicate key", newGG(3, 0, 2).str("k").u32(kindU8).bytes(1).str("k").u32(kindU8).bytes(2).data(32), "which?", []string{`duplicate key "k"`}, nil},
		{"duplicate name", newGG(3, 2, 0).info("w", 0, 0, 8).info("w", 0, 32, 8).data(64), "which?", []string{"duplicate tensor name", `"w"`}, nil},
		{"2^60 pairs", newGG(3, 0, 1<<60).data(64), "bounded by the file", []string{"1152921504606846976 key/value pairs"}, nil},
		{"2^60 tensors", newGG(3, 1<<60, 0).data(64), "bounded by the file", []string{"1152921504606846976 tensors"}, nil},
		{"2^64-1 tensors", newGG(3, math.MaxUint64, 0).data(64), "bounded by the file", nil, nil},
		{"2 tensors, 1 there", newGG(3, 2, 0).info("w", 0, 0, 8).data(64), "padding read as info", nil, nil},
		{"unknown value type", pair(func(g *gg) { g.u32(13) }), "13", []string{"unknown value type 13"}, nil},
		{"array of arrays", pair(func(g *gg) { g.u32(kindArray).u32(kindArray).u64(1) }), "nesting", []string{"array of arrays"}, nil},
		{"array of unknown", pair(func(g *gg) { g.u32(kindArray).u32(99).u64(1) }), "99", []string{"unknown value type 99"}, nil},
		{"array of 2^62 u32", pair(func(g *gg) { g.u32(kindArray).u32(kindU32).u64(1<<62 + 1) }), "size wraps", []string{"overflow"}, nil},
		{"array of 2^40 u8", pair(func(g *gg) { g.u32(kindArray).u32(kindU8).u64(1 << 40) }), "bounded by the file", []string{"1099511627776"}, nil},
		{"array of 2^40 strings", pair(func(g *gg) { g.u32(kindArray).u32(kindString).u64(1 << 40) }), "bounded by the file", []string{"1099511627776 strings"}, nil},
		{"array of a long string", pair(func(g *gg) { g.u32(kindArray).u32(kindString).u64(1).u64(1 << 40) }), "bounded by the file", nil, nil},
		{"bool 2", pair(func(g *gg) { g.u32(kindBool).bytes(2) }), "neither", []string{"bool with the value 2"}, nil},
		{"type 4", newGG(3, 1, 0).info("w", 4, 0, 32).data(64), "removed type", []string{"unknown type 4"}, nil},
		{"type 2^32-1", newGG(3, 1, 0).info("w", math.MaxUint32, 0, 32).data(64), "table index", []string{"unknown type"}, nil},
		{"row of 33 in Q8_0", newGG(3, 1, 0).info("w", 8, 0, 33, 32).data(2048), "a row holds whole blocks", []string{"rows of 33", "Q8_0", "32"}, nil},
		{"offset 8", newGG(3, 1, 0).info("w", 0, 8, 8).data(64), "alignment", []string{"multiple of the alignment 32"}, nil},
		{"offset beyond", newGG(3, 1, 0).info("w", 0, 64, 8).data(64), "truncated", []string{`"w"`, "64 bytes of data", "download"}, nil},
		{"offset 2^64-32", newGG(3, 1, 0).info("w", 0, math.MaxUint64-31, 8).data(64), "wraps", nil, nil},
		{"data cut", newGG(3, 1, 0).info("w", 0, 0, 9).data(32), "truncated", []string{"36 bytes"}, nil},
		{"overlap", newGG(3, 2, 0).info("a", 0, 0, 16).info("b", 0, 32, 8).data(64), "shared bytes", []string{`"b"`, `"a"`, "inside"}, nil},
		{"same offset", newGG(3, 2, 0).info("a", 0, 0, 8).info("b", 0, 0, 8).data(64), "shared bytes", []string{"inside"}, nil},
		{"no data", newGG(3, 1, 0).info("w", 0, 0, 8).b, "ends inside the padding", []string{"data begins"}, nil},
		{"split", newGG(3, 0, 1).str("split.count").u32(kindU16).bytes(2, 0).data(32), "a part", []string{"2 parts", "gguf-split"}, ErrUnsupported},
	}
}

// A hostile file is refused with the right error, in under 10 ms, with less than
// 1 MiB allocated, whatever it claims.
func TestHostileFiles(t *testing.T) {
	dir := t.TempDir()
	run := func(ext string, cases []hostile) {
		for _, c := range cases {
			t.Run(ext[1:]+"/"+c.name, func(t *testing.T) {
				path := writeFile(t, filepath.Join(dir, "hostile"+ext), c.file)
				var before, after runtime.MemStats
				best := time.Hour // of three, because other processes share the machine
				var err error
				for range 3 {
					runtime.ReadMemStats(&before)
					start := time.Now()
					_, err = Open(path)
					best = min(best, time.Since(start))
					runtime.ReadMemStats(&after)
				}
				want := c.is
				if want == nil {
					want = ErrCorrupt
				}
				if !errors.Is(err, want) {
					t.Fatalf("%s: error %v, want one that wraps %q", c.why, err, want)
				}
				wantMessage(t, err, append(c.want, "checkpoint: ", path)...)
				if len(err.Error()) > 600 {
					t.Errorf("message of %d bytes", len(err.Error()))
				}
				if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
					t.Errorf("%d bytes allocated", n)
				}
				if best > 10*time.Millisecond && !testing.Short() {
					t.Errorf("took %v", best)
				}
			})
		}
	}
	run(".safetensors", hostileSafetensors())
	run(".gguf", hostileGGUF())
}

// Cutting a good file anywhere is an error, never a panic and never accepted.
func TestTruncatedFiles(t *testing.T) {
	w := Entry{"w", F32, []int{2, 4}, make([]byte, 32)}
	s := stBytes(t, []Entry{w, {"v", BF16, []int{3}, make([]byte, 6)}}, map[string]string{"a": "b\"\u00e9"})
	for n := range len(s) {
		if _, err := parseSafetensors("cut", s[:n]); !errors.Is(err, ErrCorrupt) {
			t.Errorf("safetensors cut to %d of %d bytes: %v", n, len(s), err)
		}
	}
	g := ggufBytes(t, []Entry{w}, []KV{{"a", []string{"x", "yz"}}, {"b", uint32(1)}})
	for n := range len(g) { // the tensor ends with the file
		if _, err := parseGGUF("cut", g[:n]); !errors.Is(err, ErrCorrupt) {
			t.Errorf("GGUF cut to %d of %d bytes: %v", n, len(g), err)
		}
	}
}

// Valid files at the edges of the rules are accepted.
func TestAcceptedEdges(t *testing.T) {
	for name, b := range map[string][]byte{
		"no tensors":      st(`{}`, 0),
		"padding":         st("{}      \n\t", 0),
		"scalar":          st(`{"s":{"dtype":"F64","shape":[],"data_offsets":[0,8]}}`, 8),
		"empty tensors":   st(`{"a":{"dtype":"F32","shape":[0,7],"data_offsets":[0,0]},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"c":{"dtype":"U8","shape":[0],"data_offsets":[8,8]}}`, 8),
		"escapes in name": st(`{"\ud83d\ude00\n\"\\\/":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1),
		"spaces":          st("{ \"a\" : { \"shape\" : [ 1 , 1 ] , \"dtype\" : \"BOOL\" , \"data_offsets\" : [ 0 , 1 ] } }", 1),
	} {
		if _, err := parseSafetensors(name, b); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, b := range map[string][]byte{
		"version 2":         newGG(2, 0, 0).b,
		"no tensors":        newGG(3, 0, 1).str("k").u32(kindU8).bytes(1).b,
		"hole":              newGG(3, 2, 0).info("a", 0, 0, 8).info("b", 0, 96, 8).data(128),
		"unordered":         newGG(3, 2, 0).info("a", 0, 32, 8).info("b", 0, 0, 8).data(64),
		"bytes behind":      newGG(3, 1, 0).info("a", 0, 0, 8).data(100),
		"empty arrays":      newGG(3, 0, 2).str("k").u32(kindArray).u32(kindString).u64(0).str("l").u32(kindArray).u32(kindF64).u64(0).b,
		"one part of one":   newGG(3, 0, 1).str("split.count").u32(kindU16).bytes(1, 0).b,
		"largest alignment": newGG(3, 0, 1).str("general.alignment").u32(kindU32).u32(1 << 16).b,
	} {
		if _, err := parseGGUF(name, b); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	c, err := parseSafetensors("escapes", st(`{"\ud83d\ude00\n\"\\\/":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1))
	if err != nil || c.records[0].Name != "😀\n\"\\/" {
		t.Errorf("%v, %v", c, err)
	}
}

package rclc

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"samebit/checkpoint"
	"samebit/state"
)

// wireModelOf is a model of which only the description matters.
func wireModelOf(width int) *Model {
	return &Model{Info: Info{
		ModelType: "qwen3", Checkpoint: "tiny <1>", Revision: "main", Hidden: width, Vocab: 300, Layers: 3,
		LayerTypes: []string{FullLayer, LinearLayer, FullLayer}, Heads: 4, KVHeads: 2, HeadDim: 8, Context: 512,
		ID: state.ID{1, 2, 3}, Tokens: Digest{4, 5},
	}}
}

// wireSample makes a message of n rows, mixed or dense, recorded or not.
func wireSample(rng *rand.Rand, m *Model, n int, form Form, recorded bool) Message {
	msg := Message{width: m.Info.Hidden, from: &m.Info}
	for i := range n {
		id := int32(-1)
		if form == TokenIDs {
			if rng.IntN(3) > 0 || i == 0 {
				id = rng.Int32N(int32(m.Info.Vocab))
			}
			msg.ids = append(msg.ids, id)
		}
		for range msg.width {
			if id == -1 {
				msg.rows = append(msg.rows, math.Float32frombits(rng.Uint32()&0xbfffffff))
			}
		}
	}
	if recorded {
		added := rng.IntN(n)
		s := &Selection{Source: 3 * n, Budget: n + 2, Reserve: added + 1, Added: added, Selector: "cacheback span=16", Request: []int32{1, 2, 299}, Latent: 1, Rows: Digest{9}, Scores: Digest{8}}
		for i := range n - added {
			s.Indices = append(s.Indices, 3*i+rng.IntN(3))
		}
		s.Spans = spansOf(s.Source, s.Latent, nil, s.Indices, nil)
		msg.selection = s
	}
	return msg
}

func wireBytes(t testing.TB, w io.WriterTo) []byte {
	t.Helper()
	var b bytes.Buffer
	n, err := w.WriteTo(&b)
	if err != nil || n != int64(b.Len()) {
		t.Fatalf("WriteTo returns %d for %d bytes, %v", n, b.Len(), err)
	}
	return b.Bytes()
}

// sameMessage compares by bits.
func sameMessage(a, b Message) bool {
	bits := func(v []float32) (u []uint32) {
		for _, x := range v {
			u = append(u, math.Float32bits(x))
		}
		return u
	}
	return a.width == b.width && reflect.DeepEqual(bits(a.rows), bits(b.rows)) && reflect.DeepEqual(a.ids, b.ids) &&
		reflect.DeepEqual(a.from, b.from) && reflect.DeepEqual(a.selection, b.selection)
}

func TestWireRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 7))
	for i := range 200 {
		m := wireModelOf(1 + rng.IntN(9))
		d := Delivery{Request: Request{Text: "who <owns> \u2028 it?\x00"}}
		if i%3 == 0 {
			d.Request = Request{IDs: []int32{5, 0, 7}}
		}
		if i%5 == 0 {
			m.Info.Tokens, m.Info.Checkpoint, m.Info.LayerTypes = Digest{}, "", nil
		}
		plan := ""
		for range 1 + rng.IntN(12) {
			n, form, rec := 1+rng.IntN(20), Form(rng.IntN(2)), rng.IntN(2) == 0
			plan += fmt.Sprintf(" %d rows as %v, recorded %v;", n, form, rec)
			d.Messages = append(d.Messages, wireSample(rng, m, n, form, rec))
		}
		b := wireBytes(t, d)
		if again := wireBytes(t, d); !bytes.Equal(b, again) {
			t.Fatalf("plan %d:%s two writings differ", i, plan)
		}
		got, err := ReadDelivery(iotest.OneByteReader(bytes.NewReader(b)), m, Limits{})
		if err != nil {
			t.Fatalf("plan %d:%s %v", i, plan, err)
		}
		if !reflect.DeepEqual(got.Request, d.Request) || len(got.Messages) != len(d.Messages) {
			t.Fatalf("plan %d:%s request %+v with %d messages", i, plan, got.Request, len(got.Messages))
		}
		for k := range d.Messages {
			if m.Info.LayerTypes == nil {
				got.Messages[k].from.LayerTypes = nil
			}
			if !sameMessage(got.Messages[k], d.Messages[k]) {
				t.Fatalf("plan %d:%s message %d comes back as another", i, plan, k)
			}
			one, err := ReadMessage(bytes.NewReader(wireBytes(t, d.Messages[k])), nil, Limits{})
			if err != nil || one.Positions() != d.Messages[k].Positions() {
				t.Fatalf("plan %d:%s message %d alone: %v", i, plan, k, err)
			}
		}
		if back := wireBytes(t, got); !bytes.Equal(b, back) {
			t.Fatalf("plan %d:%s what was read is written differently", i, plan)
		}
	}
}

// Every byte, changed in each of two ways, and every length.
func TestWireDamage(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 7))
	m := wireModelOf(3)
	d := Delivery{Request: Request{Text: "q"}, Messages: []Message{wireSample(rng, m, 4, TokenIDs, true), wireSample(rng, m, 2, Embeddings, false)}}
	good := wireBytes(t, d)
	if _, err := ReadDelivery(bytes.NewReader(good), m, Limits{}); err != nil {
		t.Fatal(err)
	}
	for i := range good {
		for _, x := range []byte{1, 0x20, 0x80} {
			b := bytes.Clone(good)
			b[i] ^= x
			if _, err := ReadDelivery(bytes.NewReader(b), m, Limits{}); !errors.Is(err, ErrWire) {
				t.Errorf("byte %d changed by %#x: %v", i, x, err)
			}
		}
	}
	for n := range good {
		if _, err := ReadDelivery(bytes.NewReader(good[:n]), m, Limits{}); !errors.Is(err, ErrWire) {
			t.Errorf("cut to %d bytes of %d: %v", n, len(good), err)
		}
	}
	if _, err := ReadDelivery(bytes.NewReader(append(bytes.Clone(good), 0)), m, Limits{}); !errors.Is(err, ErrWire) {
		t.Errorf("one byte more: %v", err)
	}
	if _, err := ReadMessage(bytes.NewReader(good), m, Limits{}); Code(err) != "wire_kind" {
		t.Errorf("a delivery read as a message: %v", err)
	}
	if _, err := ReadDelivery(iotest.TimeoutReader(bytes.NewReader(good)), m, Limits{}); !errors.Is(err, iotest.ErrTimeout) {
		t.Errorf("a reader that fails: %v", err)
	}
}

// An error says which row is damaged.
func TestWireDamageIsNamed(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 7))
	m := wireModelOf(8)
	d := Delivery{Request: Request{Text: "q"}, Messages: []Message{wireSample(rng, m, 3, Embeddings, false), wireSample(rng, m, 5, Embeddings, false)}}
	good := wireBytes(t, d)
	set, err := checkpoint.Parse("good", good)
	if err != nil {
		t.Fatal(err)
	}
	for msg, rows := range []int{3, 5} {
		for r := range rows {
			info, _ := set.Info(fmt.Sprint(msg, ".rows"))
			b := bytes.Clone(good)
			b[int(info.Offset)+r*4*8+13] ^= 4
			_, err := ReadDelivery(bytes.NewReader(b), m, Limits{})
			if want := fmt.Sprintf("message %d: row %d ", msg, r); err == nil || !strings.Contains(err.Error(), want) || Code(err) != "wire_damaged" {
				t.Errorf("row %d of message %d: %v", r, msg, err)
			}
		}
	}
	info, _ := set.Info("1.crc32c")
	if off := int(info.Offset); true {
		b := bytes.Clone(good)
		b[off] ^= 1
		if _, err := ReadDelivery(bytes.NewReader(b), m, Limits{}); err == nil || !strings.Contains(err.Error(), "message 1: row 0 ") {
			t.Errorf("a checksum: %v", err)
		}
	}
	b := bytes.Replace(bytes.Clone(good), []byte(`"version":"1"`), []byte(`"version":"2"`), 1)
	if _, err := ReadDelivery(bytes.NewReader(b), m, Limits{}); Code(err) != "wire_version" || !strings.Contains(err.Error(), `"2"`) {
		t.Errorf("another version: %v", err)
	}
}

func TestWireMismatch(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 7))
	from := wireModelOf(4)
	b := wireBytes(t, wireSample(rng, from, 4, TokenIDs, false))
	for _, tt := range []struct {
		what, code string
		change     func(*Info)
	}{
		{"geometry", "geometry", func(i *Info) { i.Hidden++ }},
		{"geometry", "geometry", func(i *Info) { i.Vocab++ }},
		{"layers", "geometry", func(i *Info) { i.Layers++ }},
		{"query heads", "geometry", func(i *Info) { i.Heads++ }},
		{"KV heads", "geometry", func(i *Info) { i.KVHeads++ }},
		{"heads of width", "geometry", func(i *Info) { i.HeadDim++ }},
		{"linear_attention", "geometry", func(i *Info) { i.LayerTypes = []string{FullLayer, FullLayer, FullLayer} }},
		{"keys and values in F32, the receiver BF16", "kv", func(i *Info) { i.KV = "BF16" }},
		{"qwen4", "model_type", func(i *Info) { i.ModelType = "qwen4" }},
		{"tiny <1>", "checkpoint", func(i *Info) { i.Checkpoint = "other" }},
		{"main", "revision", func(i *Info) { i.Revision = "other" }},
		{"vocabulary of digest 0405", "vocabulary", func(i *Info) { i.Tokens[0]++ }},
		{"model of digest 010203", "model_digest", func(i *Info) { i.ID[31]++ }},
	} {
		to := wireModelOf(4)
		tt.change(&to.Info)
		_, err := ReadMessage(bytes.NewReader(b), to, Limits{})
		if !errors.Is(err, ErrIncompatible) || Code(err) != tt.code || tt.what != "geometry" && !strings.Contains(err.Error(), tt.what) {
			t.Errorf("%s %s: code %q, %v", tt.code, tt.what, Code(err), err)
		}
	}
	to := wireModelOf(4)
	to.Info.Checkpoint, to.Info.Revision, to.Info.Tokens, to.Info.Context = "", "", Digest{}, 7 // not known, or no matter
	if _, err := ReadMessage(bytes.NewReader(b), to, Limits{}); err != nil {
		t.Errorf("names that one side does not know: %v", err)
	}
}

// What cannot be read is not written.
func TestWireRefusesToWrite(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 7))
	m := wireModelOf(3)
	ok := wireSample(rng, m, 3, TokenIDs, true)
	dense := wireSample(rng, m, 3, Embeddings, false)
	with := func(x Message, f func(*Message)) Message { f(&x); return x }
	for _, tt := range []struct {
		code string
		w    io.WriterTo
	}{
		{"wire_model", with(ok, func(x *Message) { x.from = nil })},
		{"message_rows", Message{from: &m.Info, width: 3}},
		{"width_mismatch", with(dense, func(x *Message) { x.width = 1 })},
		{"nonfinite", with(dense, func(x *Message) { x.rows = []float32{1, 2, float32(math.NaN())} })},
		{"nonfinite", with(dense, func(x *Message) { x.rows = []float32{1, 2, float32(math.Inf(-1))} })},
		{"vocab_range", with(ok, func(x *Message) { x.ids = []int32{300} })},
		{"vocab_range", with(ok, func(x *Message) { x.ids = []int32{-2} })},
		{"message_rows", with(dense, func(x *Message) { x.ids = []int32{-1, 5} })},
		{"record", with(dense, func(x *Message) { x.selection = &Selection{Source: 9, Indices: []int{0, 1}, Budget: 9} })},
		{"record", with(dense, func(x *Message) { x.selection = &Selection{Source: 9, Indices: []int{0, 2, 1}, Budget: 9} })},
		{"record", with(dense, func(x *Message) { x.selection = &Selection{Source: 2, Indices: []int{0, 1, 2}, Budget: 9} })},
		{"record", with(dense, func(x *Message) { x.selection = &Selection{Source: 9, Indices: []int{0, 1, 2}, Budget: 2} })},
		{"wire_text", with(ok, func(x *Message) { s := *x.selection; s.Selector = "\xff"; x.selection = &s })},
		{"wire_text", Delivery{Request: Request{Text: "\xff"}, Messages: []Message{ok}}},
		{"request", Delivery{Messages: []Message{ok}}},
		{"request", Delivery{Request: Request{Text: "a", IDs: []int32{1}}, Messages: []Message{ok}}},
		{"wire_empty", Delivery{Request: Request{Text: "a"}}},
	} {
		var b bytes.Buffer
		if n, err := tt.w.WriteTo(&b); Code(err) != tt.code || n != 0 || b.Len() != 0 {
			t.Errorf("want %s before anything is written: %d bytes, code %q, %v", tt.code, b.Len(), Code(err), err)
		}
	}
	fails := errors.New("disk full")
	if _, err := ok.WriteTo(writerFunc(func([]byte) (int, error) { return 0, fails })); !errors.Is(err, fails) {
		t.Errorf("a writer that fails: %v", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func TestWireLimits(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 7))
	m := wireModelOf(3)
	d := Delivery{Request: Request{Text: "q"}, Messages: []Message{wireSample(rng, m, 4, TokenIDs, true), wireSample(rng, m, 2, Embeddings, false)}}
	b := wireBytes(t, d)
	n := int64(len(b))
	if _, err := ReadDelivery(bytes.NewReader(b), m, Limits{Bytes: n, Messages: 2, Rows: 6}); err != nil {
		t.Errorf("limits that just hold: %v", err)
	}
	for _, lim := range []Limits{{Bytes: n - 1}, {Bytes: 16}, {Bytes: 1}, {Messages: 1}, {Rows: 5}} {
		if _, err := ReadDelivery(bytes.NewReader(b), m, lim); Code(err) != "wire_limit" {
			t.Errorf("%+v: %v", lim, err)
		}
	}
	if _, err := ReadDelivery(bytes.NewReader(b), m, Limits{Bytes: -1}); !errors.Is(err, ErrOption) {
		t.Errorf("a negative limit: %v", err)
	}
}

// A few bytes that announce much take no memory.
func TestWireHostileLengths(t *testing.T) {
	shape := func(s string) []byte {
		h := `{"0.rows":{"dtype":"F32","shape":` + s + `,"data_offsets":[0,4611686018427387904]}}`
		return append(binary.LittleEndian.AppendUint64(nil, uint64(len(h))), h...)
	}
	for _, b := range [][]byte{
		binary.LittleEndian.AppendUint64(nil, math.MaxUint64),
		binary.LittleEndian.AppendUint64(nil, 1<<30-8),
		binary.LittleEndian.AppendUint64(nil, 99_000_000),
		shape("[1152921504606846976]"), shape("[2147483648,536870912]"), shape("[4611686018427387905,4]"),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := ReadDelivery(bytes.NewReader(b), nil, Limits{})
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, ErrWire) || got > 64<<10 {
			t.Errorf("%d bytes take %d of memory, %v", len(b), got, err)
		}
	}
}

const sumSize = sha256.Size

// resum makes the digest at the end right.
func resum(b []byte) []byte {
	sum := sha256.Sum256(b[:len(b)-sumSize])
	return append(b[:len(b)-sumSize], sum[:]...)
}

// Files with a right digest that no writer writes.
func TestWireForged(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 7))
	m := wireModelOf(3)
	good := wireBytes(t, wireSample(rng, m, 4, TokenIDs, true))
	for _, tt := range []struct{ from, to, code string }{
		{`\"rows\":4`, `\"rows\":5`, "wire_damaged"},
		{`\"width\":3`, `\"width\":0`, "wire_damaged"},
		{`\"width\":3`, `\"width\":2`, "wire_damaged"},
		{`\"vocab\":300`, `\"vocab\":001`, "wire_damaged"},
		{`\"vocab\":300`, `\"vocab\":1e2`, "wire_damaged"},
		{`\"vocab\":300`, `\"vocab\":003`, "wire_damaged"},
		{`\"source_positions\":12`, `\"source_positions\":02`, "wire_damaged"},
		{`\"source_positions\":12`, `\"source_positions\":-2`, "wire_damaged"},
		{`\"heads\":4`, `\"heads\": 4`, "wire_damaged"}, // no room for it
		{`"kind":"message"`, `"kind":"massage"`, "wire_kind"},
		{`"format":"samebit.rclc"`, `"format":"samebit.qclc"`, "wire_format"},
		{`\"type\":\"qwen3\"`, `\"typo\":\"qwen3\"`, "wire_canonical"},
		{`0.crc32c`, `0.crc32d`, "wire_damaged"},
		{`"sha256"`, `"sha255"`, "wire_damaged"},
		{`"0.ids"`, `"0.idz"`, "wire_damaged"},
	} {
		b := bytes.Replace(bytes.Clone(good), []byte(tt.from), []byte(tt.to), 1)
		if bytes.Equal(b, good) {
			t.Fatalf("no %s in the file", tt.from)
		}
		if _, err := ReadMessage(bytes.NewReader(resum(b)), nil, Limits{}); !errors.Is(err, ErrWire) || Code(err) != tt.code {
			t.Errorf("%s for %s: code %q, want %s: %v", tt.to, tt.from, Code(err), tt.code, err)
		}
	}
}

// Whatever a reader takes, it is written as the bytes that were read.
func FuzzReadDelivery(f *testing.F) {
	rng := rand.New(rand.NewPCG(7, 7))
	m := wireModelOf(2)
	for i := range 6 {
		d := Delivery{Request: Request{Text: "q"}, Messages: []Message{wireSample(rng, m, 1+i, Form(i%2), i%3 == 0)}}
		b := wireBytes(f, d)
		f.Add(b)
		f.Add(b[:len(b)-len(b)/3])
		f.Add(wireBytes(f, d.Messages[0]))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > sumSize { // or nothing but damage is found
			b = resum(bytes.Clone(b))
		}
		if d, err := ReadDelivery(bytes.NewReader(b), nil, Limits{Bytes: 1 << 16}); err == nil {
			if got := wireBytes(t, d); !bytes.Equal(got, b) {
				t.Errorf("%d bytes are read and written as %d others", len(b), len(got))
			}
			for _, m := range d.Messages {
				info, _ := m.Model()
				if rows, err := m.Rows(&Model{Info: info}); err != nil || len(rows) != m.Positions() {
					t.Errorf("%d rows: %v", m.Positions(), err)
				}
			}
		} else if !errors.Is(err, ErrWire) {
			t.Errorf("an error of no cause: %v", err)
		}
		if m, err := ReadMessage(bytes.NewReader(b), nil, Limits{Bytes: 1 << 16}); err == nil {
			if got := wireBytes(t, m); !bytes.Equal(got, b) {
				t.Errorf("%d bytes are read and written as %d others", len(b), len(got))
			}
		}
	})
}

package rclc

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"io"
	"slices"
	"strconv"

	"samebit/checkpoint"
)

// Limits bound what a reader of messages takes. The zero value takes files of 1 GiB
// with 1,024 messages of 4,194,304 rows.
type Limits struct {
	Bytes    int64 // of the file; 0 means 1 GiB
	Messages int   // of a delivery; 0 means 1,024
	Rows     int   // of all messages; 0 means 4,194,304
}

func (l Limits) check() (Limits, error) {
	if l.Bytes < 0 || l.Messages < 0 || l.Rows < 0 {
		return l, fail(ErrOption, "limits", "limits of %d bytes, %d messages and %d rows: want positive ones, or 0 for the defaults", l.Bytes, l.Messages, l.Rows)
	}
	if l.Bytes == 0 {
		l.Bytes = 1 << 30
	}
	if l.Messages == 0 {
		l.Messages = 1 << 10
	}
	if l.Rows == 0 {
		l.Rows = 1 << 22
	}
	return l, nil
}

// ReadMessage reads a message that [Message.WriteTo] wrote, to the end of r. It
// fails with ErrWire for a file that is damaged, of another version or beyond the
// limits, naming what is wrong, and with ErrIncompatible, naming what differs, unless
// it was made with the model to; nil compares with none. Memory grows with the bytes
// that are really there. Nothing is run.
func ReadMessage(r io.Reader, to *Model, lim Limits) (Message, error) {
	_, msgs, err := readWire(r, wireMessages, to, lim)
	if err != nil {
		return Message{}, err
	}
	return msgs[0], nil
}

// ReadDelivery reads what [Delivery.WriteTo] wrote. See [ReadMessage].
func ReadDelivery(r io.Reader, to *Model, lim Limits) (Delivery, error) {
	req, msgs, err := readWire(r, wireDelivery, to, lim)
	if err != nil {
		return Delivery{}, err
	}
	return Delivery{Request: req, Messages: msgs}, nil
}

func readWire(r io.Reader, kind string, to *Model, lim Limits) (Request, []Message, error) {
	lim, err := lim.check()
	if err != nil {
		return Request{}, nil, err
	}
	data, err := readLimited(r, lim.Bytes)
	if err != nil {
		return Request{}, nil, err
	}
	set, err := checkpoint.Parse("message", data)
	if err != nil {
		return Request{}, nil, fail(ErrWire, "wire_damaged", "the file is damaged or incomplete: %w", err)
	}
	defer set.Close() // the memory stays while messages use it
	f := &wireReader{set: set, meta: set.Metadata(), lim: lim}
	if err := f.version(); err != nil {
		return Request{}, nil, err
	}
	end := len(data) - sha256.Size
	if sum := sha256.Sum256(data[:end]); !bytes.Equal(sum[:], data[end:]) {
		return Request{}, nil, fail(ErrWire, "wire_damaged", "the file does not have the digest it was written with: %s: transfer it again", f.where())
	}
	req, msgs, err := f.read(kind)
	if err == nil {
		err = f.canonical(kind, req, msgs, data)
	}
	for i := 0; i < len(msgs) && err == nil && to != nil; i++ {
		if e := to.Info.compatible(msgs[i].from); e != nil {
			err = fail(ErrIncompatible, Code(e), "message %d: %w", i, e)
		}
	}
	return req, msgs, err
}

// readLimited reads all of r, at most n bytes.
func readLimited(r io.Reader, n int64) ([]byte, error) {
	head := make([]byte, 8)
	if k, err := io.ReadFull(r, head); err != nil {
		return nil, fail(ErrWire, "wire_damaged", "reading a message: %d bytes: %w", k, err)
	}
	if h := binary.LittleEndian.Uint64(head); h > uint64(max(n-8, 0)) {
		return nil, fail(ErrWire, "wire_limit", "a file with a header of %d bytes, at most %d bytes are taken in all: raise the limit, or the file is damaged", h, n)
	}
	b := bytes.NewBuffer(head)
	_, err := b.ReadFrom(io.LimitReader(r, n-8+1))
	switch {
	case err != nil:
		return nil, fail(ErrWire, "wire_read", "reading a message: after %d bytes: %w", b.Len(), err)
	case int64(b.Len()) > n:
		return nil, fail(ErrWire, "wire_limit", "a file of more than %d bytes, which are the limit: raise it, or send less", n)
	}
	return b.Bytes(), nil
}

// wireReader reads a parsed file.
type wireReader struct {
	set  *checkpoint.Set
	meta map[string]string
	lim  Limits
}

func (f *wireReader) version() error {
	if got := f.meta["format"]; got != wireFormat {
		return fail(ErrWire, "wire_format", "a file of format %.40q, want %q: it is no message", got, wireFormat)
	}
	if got := f.meta["version"]; got != wireVersion {
		return fail(ErrWire, "wire_version", "a message of version %.40q, this program reads %s: let both sides run the same version", got, wireVersion)
	}
	// The digest must be the end of the file.
	if t, ok := f.set.Info(wireSum); !ok || t.Type != checkpoint.U8 || t.Bytes != sha256.Size {
		return fail(ErrWire, "wire_damaged", "the file has no digest of %d bytes", sha256.Size)
	}
	for _, t := range f.set.Infos() {
		if s, _ := f.set.Info(wireSum); t.Offset+t.Bytes > s.Offset && t.Name != wireSum {
			return fail(ErrWire, "wire_damaged", "tensor %.60q stands behind the digest", t.Name)
		}
	}
	return nil
}

// where says which row is damaged, as far as checksums of rows tell.
func (f *wireReader) where() string {
	for i := 0; f.meta["message."+strconv.Itoa(i)] != ""; i++ {
		m, _, err := f.message(strconv.Itoa(i))
		if err == nil {
			err = f.rows(strconv.Itoa(i), m)
		}
		if err != nil {
			return plain(err)
		}
	}
	return "its rows are whole, its header or its checksums are not"
}

func (f *wireReader) read(kind string) (req Request, msgs []Message, err error) {
	if got := f.meta["kind"]; got != kind {
		return req, nil, fail(ErrWire, "wire_kind", "a file of kind %.40q, want a %s", got, kind)
	}
	if kind == wireDelivery {
		if err := json.Unmarshal([]byte(f.meta["request"]), &req); err != nil {
			return req, nil, fail(ErrWire, "wire_damaged", "the request cannot be read: %w", err)
		}
	}
	total := 0
	for i := 0; f.meta["message."+strconv.Itoa(i)] != ""; i++ {
		name := strconv.Itoa(i)
		if i >= f.lim.Messages {
			return req, nil, fail(ErrWire, "wire_limit", "more than %d messages, which are the limit: raise it, or send fewer", f.lim.Messages)
		}
		m, sel, err := f.message(name)
		if err == nil {
			if total += m.Positions(); total > f.lim.Rows {
				return req, nil, fail(ErrWire, "wire_limit", "more than %d rows, which are the limit: raise it, or send fewer", f.lim.Rows)
			}
			err = f.rows(name, m)
		}
		if err == nil && sel != nil {
			m.selection, err = f.selection(name, sel, m.Positions())
		}
		if err != nil {
			return req, nil, err
		}
		msgs = append(msgs, m)
	}
	if len(msgs) == 0 || kind == wireMessages && len(msgs) != 1 {
		return req, nil, fail(ErrWire, "wire_damaged", "a %s with %d messages", kind, len(msgs))
	}
	return req, msgs, nil
}

// message reads all of a message but its selection.
func (f *wireReader) message(i string) (m Message, sel *wireSelection, err error) {
	bad := func(format string, a ...any) (Message, *wireSelection, error) {
		return Message{}, nil, fail(ErrWire, "wire_damaged", "message "+i+": "+format, a...)
	}
	var h wireMessage
	if err := json.Unmarshal([]byte(f.meta["message."+i]), &h); err != nil {
		return bad("its description cannot be read: %w", err)
	}
	if m.from, err = h.Model.info(); err != nil {
		return bad("%s", plain(err))
	}
	if m.width = h.Width; m.width < 1 || m.width > 1<<24 {
		return bad("rows of %d values", m.width)
	}
	if _, ok := f.set.Info(i + ".rows"); ok {
		t, err := f.tensor(i+".rows", checkpoint.F32, 2)
		if err != nil {
			return bad("%s", plain(err))
		}
		if m.rows, err = float32s(t); err != nil || t.Shape[1] != m.width {
			return bad("its rows have shape %v, announced are rows of %d values", t.Shape, m.width)
		}
	}
	if _, ok := f.set.Info(i + ".ids"); ok {
		t, err := f.tensor(i+".ids", checkpoint.I32, 1)
		if err != nil {
			return bad("%s", plain(err))
		}
		ids, err := t.Int64s()
		if err != nil {
			return bad("%w", err)
		}
		m.ids = make([]int32, len(ids))
		for r, id := range ids {
			m.ids[r] = int32(id)
		}
	}
	if n := m.Positions(); n != h.Rows || m.Form().String() != h.Form {
		return bad("%d rows as %s, announced are %d as %.40q", n, m.Form(), h.Rows, h.Form)
	}
	return m, h.Selection, nil
}

// rows compares the rows of a message with their checksums.
func (f *wireReader) rows(i string, m Message) error {
	t, err := f.tensor(i+".crc32c", checkpoint.U32, 1)
	if err != nil {
		return err
	}
	want, err := t.Int64s()
	if err != nil || len(want) != m.Positions() {
		return fail(ErrWire, "wire_damaged", "message %s: checksums of shape %v for %d rows", i, t.Shape, m.Positions())
	}
	for r, sum := range m.rowSums() {
		if int64(sum) != want[r] {
			return fail(ErrWire, "wire_row", "message %s: row %d has the checksum %08x, was written with %08x", i, r, sum, want[r])
		}
	}
	return nil
}

func (f *wireReader) selection(i string, s *wireSelection, n int) (*Selection, error) {
	bad := func(format string, a ...any) (*Selection, error) {
		return nil, fail(ErrWire, "wire_damaged", "message "+i+": the record of its selection: "+format, a...)
	}
	t, err := f.tensor(i+".positions", checkpoint.I64, 1)
	if err != nil {
		return bad("%s", plain(err))
	}
	pos, err := t.Int64s()
	if err != nil || len(pos) != n || s.Added < 0 || s.Added > n {
		return bad("positions of shape %v and %d added rows for %d rows", t.Shape, s.Added, n)
	}
	sel := &Selection{
		Selector: s.Selector, Request: s.Request, Source: s.Source, Latent: s.Latent, Budget: s.Budget, Reserve: s.Reserve, Added: s.Added,
		Indices: make([]int, n-s.Added),
	}
	for r := range sel.Indices {
		sel.Indices[r] = int(pos[r])
	}
	if !unhex(&sel.Rows, s.Rows) || !unhex(&sel.Scores, s.Scores) {
		return bad("a digest is no SHA-256 in hexadecimal digits")
	}
	if err := sel.check(n); err != nil {
		return bad("%s", plain(err))
	}
	sel.Spans = unknownSpans(sel.Source, sel.Latent, sel.Indices)
	return sel, nil
}

// unknownSpans is spansOf of positions of which nothing is known but which were kept,
// in time that does not grow with the number that a file claims.
func unknownSpans(n, latent int, kept []int) []Span {
	var spans []Span
	add := func(start, stop int, in bool) {
		if m := min(stop, n-latent); start < m {
			spans = append(spans, Span{Start: start, Stop: m, Kept: in, Kind: KindUnknown})
			start = m
		}
		if start < stop {
			spans = append(spans, Span{Start: start, Stop: stop, Kept: in, Kind: KindLatent})
		}
	}
	at := 0
	for i := 0; i < len(kept); {
		from := kept[i]
		to := from + 1
		for i++; i < len(kept) && kept[i] == to; i++ {
			to++
		}
		add(at, from, false)
		add(from, to, true)
		at = to
	}
	add(at, n, false)
	return spans
}

// tensor is one of the file, of a type and a number of axes.
func (f *wireReader) tensor(name string, t checkpoint.Type, axes int) (checkpoint.Entry, error) {
	e, err := f.set.Tensor(name)
	if err != nil {
		return e, fail(ErrWire, "wire_damaged", "%w", err)
	}
	if e.Type != t || len(e.Shape) != axes {
		return e, fail(ErrWire, "wire_damaged", "tensor %q of type %v and shape %v, want %v with %d axes", name, e.Type, e.Shape, t, axes)
	}
	return e, nil
}

// canonical refuses a file that is not the one that its content is written as.
func (f *wireReader) canonical(kind string, req Request, msgs []Message, data []byte) error {
	w, err := packWire(kind, req, msgs)
	if err != nil {
		return fail(ErrWire, "wire_damaged", "what the file says could not be written: %s", plain(err))
	}
	copy(w.sum, data[len(data)-sha256.Size:])
	c := &comparer{want: data}
	if err := w.write(c); err != nil {
		return err
	}
	if !c.same() {
		return fail(ErrWire, "wire_canonical", "the file is not written as this version writes what it says: it comes from another program")
	}
	return nil
}

// comparer compares what is written with want.
type comparer struct {
	want  []byte
	other bool
}

func (c *comparer) Write(b []byte) (int, error) {
	n := min(len(b), len(c.want))
	c.other = c.other || n < len(b) || !bytes.Equal(b, c.want[:n])
	c.want = c.want[n:]
	return len(b), nil
}

func (c *comparer) same() bool { return !c.other && len(c.want) == 0 }

func (w *wireModel) info() (*Info, error) {
	m := &Info{
		ModelType: w.Type, Checkpoint: w.Checkpoint, Revision: w.Revision,
		Hidden: w.Hidden, Vocab: w.Vocab, Layers: w.Layers, LayerTypes: w.LayerTypes,
		Heads: w.Heads, KVHeads: w.KVHeads, HeadDim: w.HeadDim, KV: w.KV, Context: w.Context,
	}
	if w.Digest == "" || !unhex((*Digest)(&m.ID), w.Digest) || !unhex(&m.Tokens, w.Vocabulary) {
		return nil, fail(ErrWire, "wire_damaged", "a digest of its model is no SHA-256 in hexadecimal digits")
	}
	return m, nil
}

// Model describes the model that the message was made with; false when that is not
// known.
func (m Message) Model() (Info, bool) {
	if m.from == nil {
		return Info{}, false
	}
	i := *m.from
	i.LayerTypes = slices.Clone(i.LayerTypes)
	return i, true
}

// float32s views a tensor, or copies it on a machine of the other byte order.
func float32s(e checkpoint.Entry) ([]float32, error) {
	if t, err := e.View(); err == nil {
		if v, ok := t.F32(); ok {
			return v, nil
		}
	}
	return e.Float32s()
}

// unhex reads what hexDigest wrote.
func unhex(d *Digest, s string) bool {
	if s == "" {
		return true
	}
	b, err := hex.DecodeString(s)
	return err == nil && copy(d[:], b) == len(d) && len(b) == len(d)
}

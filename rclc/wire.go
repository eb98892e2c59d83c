package rclc

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"hash/crc32"
	"io"
	"math"
	"strconv"
	"unicode/utf8"

	"samebit/checkpoint"
)

// A message or a delivery is written as a safetensors file. Its metadata are
//
//	format    samebit.rclc
//	version   1
//	kind      message or delivery
//	request   of a delivery: JSON of Request
//	message.i JSON of wireMessage, i = 0, 1, ...
//
// and its tensors, of message i with n rows, of which c are continuous,
//
//	i.rows      F32 [c, width]  continuous rows, in order; absent if c = 0
//	i.ids       I32 [n]         form token_ids+continuous: -1 for a continuous row
//	i.positions I64 [n]         recorded: the source's position of each row, -1 for a row of reasoning
//	i.crc32c    U32 [n]         of each row: CRC-32C of its id (-1 without ids) and, if continuous, its values
//	sha256      U8 [32]         of all bytes of the file before these, the last ones
//
// The checksums of rows say which row is damaged, the digest that nothing is. One
// message has one such file: a reader refuses every other file that would mean it.
const (
	wireFormat   = "samebit.rclc"
	wireVersion  = "1"
	wireMessages = "message"
	wireDelivery = "delivery"
	wireSum      = "sha256"
)

// wireMessage is what a file says about a message besides its tensors.
type wireMessage struct {
	Model     wireModel      `json:"model"`
	Form      string         `json:"form"`
	Rows      int            `json:"rows"`
	Width     int            `json:"width"`
	Selection *wireSelection `json:"selection,omitempty"`
}

// wireModel is an Info.
type wireModel struct {
	Digest     string   `json:"digest"`
	Vocabulary string   `json:"vocabulary_digest,omitempty"`
	Type       string   `json:"type"`
	Checkpoint string   `json:"checkpoint,omitempty"`
	Revision   string   `json:"revision,omitempty"`
	Hidden     int      `json:"hidden"`
	Vocab      int      `json:"vocab"`
	Layers     int      `json:"layers"`
	LayerTypes []string `json:"layer_types"`
	Heads      int      `json:"heads"`
	KVHeads    int      `json:"kv_heads"`
	HeadDim    int      `json:"head_dim"`
	KV         string   `json:"kv,omitempty"`
	Context    int      `json:"context"`
}

// wireSelection is a Selection without spans, whose texts would tell the receiver what
// was left out, and without indices, which are the positions. A reader makes spans of
// positions that it knows nothing of.
type wireSelection struct {
	Selector string  `json:"selector,omitempty"`
	Request  []int32 `json:"request_ids,omitempty"`
	Source   int     `json:"source_positions"`
	Latent   int     `json:"latent_steps,omitempty"`
	Budget   int     `json:"budget"`
	Reserve  int     `json:"reserve,omitempty"`
	Added    int     `json:"added_latent_positions,omitempty"`
	Rows     string  `json:"rows_digest,omitempty"`
	Scores   string  `json:"scores_digest,omitempty"`
}

// WriteTo writes the message as a file that [ReadMessage] reads: rows, model and
// vocabulary digests, geometry, the receipt of the selection if there is one (without
// the texts of its spans), and checksums. Equal messages give equal bytes.
func (m Message) WriteTo(w io.Writer) (int64, error) {
	return writeWire(w, wireMessages, Request{}, []Message{m})
}

// WriteTo writes the delivery as a file that [ReadDelivery] reads. See
// [Message.WriteTo].
func (d Delivery) WriteTo(w io.Writer) (int64, error) {
	return writeWire(w, wireDelivery, d.Request, d.Messages)
}

func writeWire(w io.Writer, kind string, req Request, msgs []Message) (int64, error) {
	f, err := packWire(kind, req, msgs)
	if err != nil {
		return 0, err
	}
	var size counter
	if err := f.write(&size); err != nil {
		return 0, err
	}
	// The header does not depend on the digest, which is the end of the file.
	h := sha256.New()
	if err := f.write(&limited{h, size.n - sha256.Size}); err != nil {
		return 0, err
	}
	h.Sum(f.sum[:0])
	out := counter{w: w}
	err = f.write(&out)
	return out.n, err
}

// wireFile is a file ready to be written.
type wireFile struct {
	list []checkpoint.Entry
	meta map[string]string
	sum  []byte // the data of wireSum
}

func (f *wireFile) write(w io.Writer) error {
	if err := checkpoint.Write(w, f.list, f.meta); err != nil {
		return fail(ErrWire, "wire_write", "writing a message: %w", err)
	}
	return nil
}

func (f *wireFile) add(name string, t checkpoint.Type, shape []int, data []byte) {
	f.list = append(f.list, checkpoint.Entry{Name: name, Type: t, Shape: shape, Data: data})
}

// packWire checks messages and lays them out. Rows are not copied.
func packWire(kind string, req Request, msgs []Message) (*wireFile, error) {
	f := &wireFile{meta: map[string]string{"format": wireFormat, "version": wireVersion, "kind": kind}, sum: make([]byte, sha256.Size)}
	if kind == wireDelivery {
		if len(msgs) == 0 {
			return nil, fail(ErrWire, "wire_empty", "the delivery has no messages")
		}
		if req.Text != "" && len(req.IDs) > 0 || req.Text == "" && len(req.IDs) == 0 {
			return nil, fail(ErrRequest, "request", "a request of %d bytes of text and %d ids: want one of them", len(req.Text), len(req.IDs))
		}
		text, err := wireJSON("request", req, req.Text)
		if err != nil {
			return nil, err
		}
		f.meta["request"] = text
	}
	for i, m := range msgs {
		if err := f.message(strconv.Itoa(i), m); err != nil {
			return nil, err
		}
	}
	f.add(wireSum, checkpoint.U8, []int{sha256.Size}, f.sum)
	return f, nil
}

func (f *wireFile) message(i string, m Message) error {
	if m.from == nil {
		return fail(ErrWire, "wire_model", "message %s does not know its model: write one that Transfer made or that was read", i)
	}
	n := m.Positions()
	if err := m.checkPayload(m.from.Vocab); err != nil {
		return fail(ErrWire, Code(err), "message %s: %s", i, plain(err))
	}
	if m.width != m.from.Hidden {
		return fail(ErrWire, "width_mismatch", "message %s has rows of %d values, its model takes %d", i, m.width, m.from.Hidden)
	}
	head := wireMessage{Model: wireInfo(m.from), Form: m.Form().String(), Rows: n, Width: m.width}
	if len(m.rows) > 0 {
		f.add(i+".rows", checkpoint.F32, []int{len(m.rows) / m.width, m.width}, checkpoint.LittleEndian(m.rows))
	}
	if m.ids != nil {
		f.add(i+".ids", checkpoint.I32, []int{n}, checkpoint.LittleEndian(m.ids))
	}
	if s := m.selection; s != nil {
		if err := s.check(n); err != nil {
			return fail(ErrWire, Code(err), "message %s: %s", i, plain(err))
		}
		head.Selection = &wireSelection{
			Selector: s.Selector, Request: s.Request, Source: s.Source, Latent: s.Latent, Budget: s.Budget, Reserve: s.Reserve, Added: s.Added,
			Rows: hexDigest(s.Rows), Scores: hexDigest(s.Scores),
		}
		var pos []byte
		for r := range n {
			p := uint64(math.MaxUint64) // -1
			if r < len(s.Indices) {
				p = uint64(s.Indices[r])
			}
			pos = binary.LittleEndian.AppendUint64(pos, p)
		}
		f.add(i+".positions", checkpoint.I64, []int{n}, pos)
	}
	f.add(i+".crc32c", checkpoint.U32, []int{n}, checkpoint.LittleEndian(m.rowSums()))
	names := []string{m.from.ModelType, m.from.Checkpoint, m.from.Revision, m.from.KV}
	if m.selection != nil {
		names = append(names, m.selection.Selector)
	}
	text, err := wireJSON("message "+i, head, append(names, m.from.LayerTypes...)...)
	f.meta["message."+i] = text
	return err
}

// wireJSON refuses text that JSON would silently change.
func wireJSON(what string, v any, texts ...string) (string, error) {
	for _, t := range texts {
		if !utf8.ValidString(t) {
			return "", fail(ErrWire, "wire_text", "%s: the text %.60q is not valid UTF-8", what, t)
		}
	}
	b, err := json.Marshal(v)
	if err != nil {
		return "", fail(ErrWire, "wire_write", "%s: %w", what, err)
	}
	return string(b), nil
}

func wireInfo(m *Info) wireModel {
	return wireModel{
		Digest: hex.EncodeToString(m.ID[:]), Vocabulary: hexDigest(m.Tokens),
		Type: m.ModelType, Checkpoint: m.Checkpoint, Revision: m.Revision,
		Hidden: m.Hidden, Vocab: m.Vocab, Layers: m.Layers, LayerTypes: append([]string{}, m.LayerTypes...),
		Heads: m.Heads, KVHeads: m.KVHeads, HeadDim: m.HeadDim, KV: m.KV, Context: m.Context,
	}
}

// checkPayload refuses rows and ids that do not fit together, that no vocabulary of
// vocab ids has, or that no model could have made.
func (m Message) checkPayload(vocab int) error {
	n := m.Positions()
	if n < 1 || m.width < 1 || len(m.rows)%m.width != 0 {
		return fail(ErrMessage, "message_rows", "%d rows from %d values in rows of %d", n, len(m.rows), m.width)
	}
	c := 0
	for i, id := range m.ids {
		if id < -1 || int(id) >= vocab {
			return fail(ErrMessage, "vocab_range", "row %d has the id %d: want -1 for a continuous row, or one of the vocabulary of %d", i, id, vocab)
		}
		if id == -1 {
			c++
		}
	}
	if m.ids != nil && c != len(m.rows)/m.width {
		return fail(ErrMessage, "message_rows", "%d continuous rows for %d ids of -1", len(m.rows)/m.width, c)
	}
	for i, v := range m.rows {
		if v-v != 0 {
			return fail(ErrMessage, "nonfinite", "value %d of continuous row %d is %v", i%m.width, i/m.width, v)
		}
	}
	return nil
}

// check refuses a record that does not describe n rows.
func (s *Selection) check(n int) error {
	if s.Added < 0 || len(s.Indices)+s.Added != n {
		return fail(ErrMessage, "record", "a record of %d indices and %d added rows for %d rows", len(s.Indices), s.Added, n)
	}
	if s.Source < 1 || s.Latent < 0 || s.Latent >= s.Source || s.Reserve < s.Added || s.Budget-s.Reserve < len(s.Indices) {
		return fail(ErrMessage, "record", "%d of %d positions with a latent tail of %d, in a budget of %d of which %d are reserved for %d added rows: the counts do not fit", len(s.Indices), s.Source, s.Latent, s.Budget, s.Reserve, s.Added)
	}
	last := -1
	for i, p := range s.Indices {
		if p <= last || p >= s.Source {
			return fail(ErrMessage, "record", "index %d is position %d after %d of %d: want rising positions", i, p, last, s.Source)
		}
		last = p
	}
	return nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// rowSums are the checksums of the rows.
func (m Message) rowSums() []uint32 {
	sums := make([]uint32, m.Positions())
	rows := checkpoint.LittleEndian(m.rows)
	for i := range sums {
		id := int32(-1)
		if m.ids != nil {
			id = m.ids[i]
		}
		sums[i] = crc32.Checksum(binary.LittleEndian.AppendUint32(nil, uint32(id)), castagnoli)
		if id == -1 && len(rows) >= 4*m.width { // fewer only in a damaged file
			sums[i] = crc32.Update(sums[i], castagnoli, rows[:4*m.width])
			rows = rows[4*m.width:]
		}
	}
	return sums
}

// hexDigest leaves a digest that is not known empty.
func hexDigest(d Digest) string {
	if d == (Digest{}) {
		return ""
	}
	return hex.EncodeToString(d[:])
}

// counter counts what goes to w, or to nowhere.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(b []byte) (n int, err error) {
	n = len(b)
	if c.w != nil {
		n, err = c.w.Write(b)
	}
	c.n += int64(n)
	return n, err
}

// limited passes on the first left bytes.
type limited struct {
	w    io.Writer
	left int64
}

func (l *limited) Write(b []byte) (int, error) {
	n := min(int64(len(b)), l.left)
	l.left -= n
	if _, err := l.w.Write(b[:n]); err != nil {
		return 0, err
	}
	return len(b), nil
}

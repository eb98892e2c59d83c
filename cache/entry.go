package cache

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"samebit/checkpoint"
	"samebit/state"
	"samebit/tensor"
)

// An entry is written as a safetensors file: the rows, the tensors of the
// snapshot, and metadata with the key and a SHA-256 of every tensor's bytes.
const (
	entryFormat  = "samebit.cache"
	entryVersion = "1"

	tokensName = "rows.tokens" // I32 [rows], -1 for continuous rows
	vecsName   = "rows.vecs"   // F32 [continuous rows, width], in order
	sumPrefix  = "sha256."
)

var (
	errDamaged = errors.New("damaged entry")
	errOther   = errors.New("entry of other rows")
)

// packed is an entry ready to be written.
type packed struct {
	list []checkpoint.Entry
	meta map[string]string
	size int64
}

// pack copies a snapshot out of its pool.
func pack(e Entry, s state.Snapshot) (*packed, error) {
	if s.Len() != len(e.Rows) || s.Model() != e.Key.Model {
		return nil, fmt.Errorf("cache: storing %d rows of model %v: the snapshot has %d of model %v: %w", len(e.Rows), e.Key.Model, s.Len(), s.Model(), state.ErrForeign)
	}
	p := &packed{meta: map[string]string{
		"format": entryFormat, "version": entryVersion, "rows": strconv.Itoa(len(e.Rows)),
		"model": hex.EncodeToString(e.Key.Model[:]), "route": strconv.Itoa(int(e.Key.Route)), "extra": hex.EncodeToString(e.Key.Extra[:]),
	}}
	var tokens, vecs []byte
	n, width := 0, 0
	for _, r := range e.Rows {
		tok := r.Token
		if r.Vec != nil {
			if n > 0 && len(r.Vec) != width {
				return nil, fmt.Errorf("cache: storing continuous rows of %d and of %d values", width, len(r.Vec))
			}
			tok, width = -1, len(r.Vec)
			n++
			vecs = append(vecs, checkpoint.LittleEndian(r.Vec)...)
		}
		tokens = binary.LittleEndian.AppendUint32(tokens, uint32(tok))
	}
	p.add(tokensName, checkpoint.I32, []int{len(e.Rows)}, tokens)
	if n > 0 {
		p.add(vecsName, checkpoint.F32, []int{n, width}, vecs)
	}
	err := s.Save(func(name string, t tensor.Tensor) error {
		if strings.HasPrefix(name, "rows.") || t.DType() != tensor.F32 && t.DType() != tensor.BF16 {
			return fmt.Errorf("cache: storing tensor %q of %v: names under rows. and types but F32 and BF16 have no place in an entry", name, t)
		}
		v, err := checkpoint.FromTensor(name, t)
		if err != nil {
			return fmt.Errorf("cache: storing tensor %q: %w", name, err)
		}
		p.add(v.Name, v.Type, v.Shape, v.Data)
		return nil
	})
	if err != nil {
		return nil, err
	}
	var n64 counter
	if err := p.write(&n64); err != nil {
		return nil, err
	}
	p.size = int64(n64)
	return p, nil
}

func (p *packed) add(name string, dt checkpoint.Type, dim []int, data []byte) {
	p.list = append(p.list, checkpoint.Entry{Name: name, Type: dt, Shape: dim, Data: data})
	sum := sha256.Sum256(data)
	p.meta[sumPrefix+name] = hex.EncodeToString(sum[:])
}

func (p *packed) write(w io.Writer) error { return checkpoint.Write(w, p.list, p.meta) }

type counter int64

func (c *counter) Write(b []byte) (int, error) {
	*c += counter(len(b))
	return len(b), nil
}

// WriteEntry writes an entry in the form that [ReadEntry] reads, for stores that
// keep bytes.
func WriteEntry(w io.Writer, e Entry, s state.Snapshot) error {
	p, err := pack(e, s)
	if err != nil {
		return err
	}
	return p.write(w)
}

// ReadEntry makes into the sequence e from what WriteEntry wrote. It fails with
// ErrNotFound when the bytes are damaged, of another version, or of another key
// or other rows than e; nothing of them has been used then.
func ReadEntry(data []byte, e Entry, into Appender) error {
	set, err := checkpoint.Parse("cache entry", data)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	defer set.Close()
	err = adopt(set, e, into)
	if errors.Is(err, errDamaged) || errors.Is(err, errOther) {
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return err
}

// EntryRows reads which entry the bytes of WriteEntry are, without looking at its
// state.
func EntryRows(data []byte) (Entry, error) {
	set, err := checkpoint.Parse("cache entry", data)
	if err != nil {
		return Entry{}, err
	}
	defer set.Close()
	return identify(set)
}

// adopt checks all of set and makes into its sequence. The errors errDamaged and
// errOther say that into was not touched.
func adopt(set *checkpoint.Set, e Entry, into Appender) error {
	got, err := identify(set)
	if err != nil {
		return err
	}
	if got.Key != e.Key || len(got.Rows) != len(e.Rows) || commonRows(got.Rows, e.Rows) != len(e.Rows) {
		return errOther
	}
	for _, name := range set.Names() {
		if _, err := checked(set, name); err != nil {
			return err
		}
	}
	err = into.Adopt(e.Rows, func(name string) (tensor.Tensor, error) {
		t, err := set.Tensor(name)
		if err != nil {
			return tensor.Tensor{}, fmt.Errorf("%w: %w", errDamaged, err)
		}
		if v, err := t.View(); err == nil {
			return v, nil
		}
		if t.Type == checkpoint.BF16 { // a machine of the other byte order
			half := make([]uint16, len(t.Data)/2)
			for i := range half {
				half[i] = binary.LittleEndian.Uint16(t.Data[2*i:])
			}
			return tensor.New(tensor.Bytes(tensor.AsBytes(half)), 0, tensor.BF16, t.Shape...)
		}
		v, err := t.Float32s()
		if err != nil {
			return tensor.Tensor{}, fmt.Errorf("%w: %w", errDamaged, err)
		}
		return tensor.FromF32(v, t.Shape...)
	})
	if errors.Is(err, state.ErrForeign) {
		return fmt.Errorf("%w: %w", errDamaged, err) // it never fits this model
	}
	return err
}

// identify reads and checks the key and the rows.
func identify(set *checkpoint.Set) (Entry, error) {
	m := set.Metadata()
	bad := func(format string, a ...any) (Entry, error) {
		return Entry{}, fmt.Errorf("cache: %s: %s: %w", set.Path(), fmt.Sprintf(format, a...), errDamaged)
	}
	if m["format"] != entryFormat || m["version"] != entryVersion {
		return bad("format %.40q version %.40q, this program reads %s version %s", m["format"], m["version"], entryFormat, entryVersion)
	}
	var k Key
	route, err := strconv.ParseInt(m["route"], 10, 32)
	if err != nil || !unhex(k.Model[:], m["model"]) || !unhex(k.Extra[:], m["extra"]) {
		return bad("unreadable key")
	}
	k.Route = int32(route)
	tok, err := checked(set, tokensName)
	if err != nil {
		return Entry{}, err
	}
	ids, err := tok.Int64s()
	if err != nil || len(tok.Shape) != 1 || m["rows"] != strconv.Itoa(len(ids)) || len(ids) == 0 {
		return bad("%.40q rows announced, tokens of shape %v", m["rows"], tok.Shape)
	}
	var vecs []float32
	width := 0
	if _, ok := set.Info(vecsName); ok {
		v, err := checked(set, vecsName)
		if err != nil {
			return Entry{}, err
		}
		if vecs, err = v.Float32s(); err != nil || len(v.Shape) != 2 || v.Shape[1] == 0 {
			return bad("continuous rows of shape %v", v.Shape)
		}
		width = v.Shape[1]
	}
	rows := make([]state.Row, len(ids))
	for i, id := range ids {
		rows[i].Token = int32(id)
		if id == -1 {
			if len(vecs) < width || width == 0 {
				return bad("fewer continuous rows than announced")
			}
			rows[i].Vec, vecs = vecs[:width:width], vecs[width:]
		}
	}
	if len(vecs) != 0 {
		return bad("more continuous rows than announced")
	}
	return NewEntry(k, rows), nil
}

// checked returns a tensor whose bytes have the sum they were written with.
func checked(set *checkpoint.Set, name string) (checkpoint.Entry, error) {
	t, err := set.Tensor(name)
	if err != nil {
		return t, fmt.Errorf("%w: %w", errDamaged, err)
	}
	sum := sha256.Sum256(t.Data)
	if set.Metadata()[sumPrefix+name] != hex.EncodeToString(sum[:]) {
		return t, fmt.Errorf("cache: %s: tensor %.60q does not have the checksum it was written with: %w", set.Path(), name, errDamaged)
	}
	return t, nil
}

func unhex(dst []byte, s string) bool {
	if len(s) != 2*len(dst) {
		return false
	}
	_, err := hex.Decode(dst, []byte(s))
	return err == nil
}

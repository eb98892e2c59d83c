package nn

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"

	"samebit/checkpoint"
	"samebit/state"
	"samebit/tensor"
)

// A saved sequence is a safetensors file: what the state kind writes, the rows,
// and this metadata.
const (
	saveFormat  = "samebit.sequence"
	saveVersion = "1"

	kvMeta = "kv" // storage type of keys and values, left out for F32

	tokensName = "rows.tokens" // I32 [n], -1 for continuous rows
	vecsName   = "rows.vecs"   // F32 [continuous rows, H], in order
)

// Save writes the sequence so that Load, in this or another process, on this or
// another device, continues with the same bits.
func (r *Runner) Save(w io.Writer) error {
	snap, err := r.Snapshot()
	if err != nil {
		return err
	}
	defer snap.Release()
	var tokens, vecs []byte
	n := 0
	for _, row := range r.rows {
		id := row.Token
		if row.Vec != nil {
			id = -1
			n++
			vecs = append(vecs, checkpoint.LittleEndian(row.Vec)...)
		}
		tokens = binary.LittleEndian.AppendUint32(tokens, uint32(id))
	}
	list := []checkpoint.Entry{{Name: tokensName, Type: checkpoint.I32, Shape: []int{len(r.rows)}, Data: tokens}}
	if n > 0 {
		list = append(list, checkpoint.Entry{Name: vecsName, Type: checkpoint.F32, Shape: []int{n, r.dec.Hidden}, Data: vecs})
	}
	err = snap.Save(func(name string, t tensor.Tensor) error {
		e, err := checkpoint.FromTensor(name, t)
		list = append(list, e)
		return err
	})
	if err != nil {
		return err
	}
	meta := map[string]string{
		"format": saveFormat, "version": saveVersion, "model": hex.EncodeToString(r.dec.ID[:]), "rows": strconv.Itoa(len(r.rows)),
	}
	if dt := r.dec.Shapes.KV.Stored(); dt != tensor.F32 {
		meta[kvMeta] = dt.String()
	}
	return checkpoint.Write(w, list, meta)
}

// Load replaces the sequence by one that Save wrote. It fails with
// state.ErrForeign for another model's, with checkpoint.ErrCorrupt for a damaged
// one, and leaves the sequence as it was. There are no logits until the next
// Append.
func (r *Runner) Load(rd io.Reader) error {
	if err := r.usable(); err != nil {
		return err
	}
	data, err := io.ReadAll(rd) // as much as there is, not as much as a header says
	if err != nil {
		return fmt.Errorf("nn: reading a saved sequence: %w", err)
	}
	set, err := checkpoint.Parse("saved sequence", data)
	if err != nil {
		return err
	}
	defer set.Close()
	rows, err := r.savedRows(set)
	if err != nil {
		return err
	}
	var held []checkpoint.Entry // views must outlive Load
	err = r.State().Load(len(rows), func(name string) (tensor.Tensor, error) {
		e, err := set.Tensor(name)
		if err != nil {
			return tensor.Tensor{}, fmt.Errorf("nn: saved sequence: %w", err)
		}
		held = append(held, e)
		return e.View()
	})
	if err != nil {
		return err
	}
	r.rows, r.fresh = rows, false
	return nil
}

// savedRows checks a file's metadata and reads its rows.
func (r *Runner) savedRows(set *checkpoint.Set) ([]state.Row, error) {
	m := set.Metadata()
	if m["format"] != saveFormat {
		return nil, fmt.Errorf("nn: the file is not a saved sequence (format %q, want %q)", m["format"], saveFormat)
	}
	if m["version"] != saveVersion {
		return nil, fmt.Errorf("nn: saved sequence of version %q, this program reads version %s", m["version"], saveVersion)
	}
	if want, have := r.dec.Shapes.KV.Stored().String(), cmp.Or(m[kvMeta], tensor.F32.String()); have != want {
		return nil, fmt.Errorf("nn: the sequence was saved with keys and values in %.8s, this model keeps them in %s: open it with that type, or run the rows again: %w", have, want, state.ErrForeign)
	}
	if want := hex.EncodeToString(r.dec.ID[:]); m["model"] != want {
		return nil, fmt.Errorf("nn: the sequence was saved by model %.16s…, this is model %.16s…: %w", m["model"], want, state.ErrForeign)
	}
	tok, err := set.Tensor(tokensName)
	if err != nil {
		return nil, fmt.Errorf("nn: saved sequence: %w", err)
	}
	ids, err := tok.Int64s()
	if err != nil || len(tok.Shape) != 1 || m["rows"] != strconv.Itoa(len(ids)) {
		return nil, fmt.Errorf("nn: saved sequence says it has %q rows and holds %v tokens: %w", m["rows"], tok.Shape, checkpoint.ErrCorrupt)
	}
	if d := r.dec; d.Context > 0 && len(ids) > d.Context {
		return nil, fmt.Errorf("nn: saved sequence of %d rows exceeds the context of %d", len(ids), d.Context)
	}
	var vecs []float32
	if _, ok := set.Info(vecsName); ok {
		e, err := set.Tensor(vecsName)
		if err == nil {
			vecs, err = e.Float32s()
		}
		if err != nil {
			return nil, fmt.Errorf("nn: saved sequence: %w", err)
		}
	}
	rows := make([]state.Row, len(ids))
	for i, id := range ids {
		h := r.dec.Hidden
		switch {
		case id == -1 && len(vecs) >= h:
			rows[i] = state.Row{Token: -1, Vec: vecs[:h:h]}
			vecs = vecs[h:]
		case id >= 0 && int(id) < r.dec.Vocab:
			rows[i].Token = int32(id)
		default:
			return nil, fmt.Errorf("nn: saved sequence: row %d has token %d of a vocabulary of %d: %w", i, id, r.dec.Vocab, checkpoint.ErrCorrupt)
		}
	}
	if len(vecs) != 0 {
		return nil, fmt.Errorf("nn: saved sequence has %d values of continuous rows too many: %w", len(vecs), checkpoint.ErrCorrupt)
	}
	return rows, nil
}

package rclc

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"

	"samebit/checkpoint"
	"samebit/internal/wholefile"
	"samebit/state"
)

// A snapshot file is a safetensors file with a sender's input rows [T, Hidden] and
// their ids [T], and what its model was; no weights, keys or values. Whoever loads it
// runs the rows anew. It is private model input: who has it can read the text.
const (
	rowsName    = "rows"
	idsName     = "ids"
	ownMeta     = "rclc" // metadata key of our files
	foreignMeta = "rcc"  // and of the reference's
	writerName  = "samebit"
)

// snapshotMeta is the JSON text in the metadata of our files.
type snapshotMeta struct {
	Format    int    `json:"format"`
	Writer    string `json:"writer"`
	Identity  string `json:"identity"` // Info.ID, hex
	Tokens    string `json:"tokens"`   // Info.Tokens, hex; "" without a tokenizer
	Content   string `json:"content"`  // SHA-256 of rows and ids, hex
	Latent    int    `json:"latent_steps"`
	Inherited int    `json:"inherited_positions"`
}

// foreignSnapshot is that of the reference's files.
type foreignSnapshot struct {
	Format    int    `json:"format"`
	Identity  string `json:"identity"`
	Latent    int    `json:"latent_steps"`
	Inherited int    `json:"inherited_positions"`
}

// Save writes the sender to a file, which appears, or is replaced, as a whole:
// whatever happens, the path stands for the old content or the new, and when Save
// has returned nil the new one survives the loss of power.
func (s *Sender) Save(ctx context.Context, path string) error {
	return s.save(ctx, wholefile.OS(filepath.Dir(path)), filepath.Base(path))
}

func (s *Sender) save(ctx context.Context, d wholefile.Folder, name string) error {
	if err := s.Validate(); err != nil {
		return err
	}
	rows, ids, err := s.matrix(ctx)
	if err != nil {
		return err
	}
	m := s.Model.Info
	entries := []checkpoint.Entry{{Name: rowsName, Type: checkpoint.F32, Shape: []int{len(s.Rows), m.Hidden}, Data: rows}}
	if ids != nil {
		entries = append(entries, checkpoint.Entry{Name: idsName, Type: checkpoint.I64, Shape: []int{len(s.Rows)}, Data: ids})
	}
	meta, err := json.Marshal(snapshotMeta{
		Format: 1, Writer: writerName, Identity: m.ID.String(), Tokens: hexDigest(m.Tokens), Content: content(rows, ids),
		Latent: s.Latent, Inherited: s.Inherited,
	})
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	err = wholefile.Replace(d, name, func(w io.Writer) error {
		return checkpoint.Write(w, entries, map[string]string{ownMeta: string(meta)})
	})
	if err != nil {
		return fmt.Errorf("rclc: saving %d rows as %s: %w", len(s.Rows), name, err)
	}
	return nil
}

func content(rows, ids []byte) string {
	h := sha256.New()
	h.Write(rows)
	h.Write(ids)
	return hex.EncodeToString(h.Sum(nil))
}

const rowBlock = 1024 // rows looked up in the embedding at once

// matrix is the little-endian bytes of the rows, all of them vectors, and of the
// ids, nil if they are unknown. A token row that is not the embedding's, or a value
// that is not finite, is refused: nobody could load it.
func (s *Sender) matrix(ctx context.Context) (rows, ids []byte, err error) {
	h := s.Model.Info.Hidden
	rows = make([]byte, 0, 4*h*len(s.Rows))
	for at := 0; at < len(s.Rows); at += rowBlock {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		block := s.Rows[at:min(at+rowBlock, len(s.Rows))]
		table, err := tableRows(s.Model, block)
		if err != nil {
			return nil, nil, err
		}
		for i, r := range block {
			v := r.Vec
			if r.Token >= 0 {
				v, table = table[:h], table[h:]
				if r.Vec != nil && !sameBits(r.Vec, v) {
					return nil, nil, fail(ErrState, "ids_do_not_reproduce_rows", "row %d has the id %d and not that token's row: a snapshot of it could not be loaded", at+i, r.Token)
				}
			}
			for j, x := range v {
				if !finite(x) {
					return nil, nil, fail(ErrState, "nonfinite_rows", "value %d of row %d is %v: a snapshot of it could not be loaded", j, at+i, x)
				}
				rows = binary.LittleEndian.AppendUint32(rows, math.Float32bits(x))
			}
		}
	}
	if s.NoIDs {
		return rows, nil, nil
	}
	ids = make([]byte, 0, 8*len(s.Rows))
	for _, r := range s.Rows {
		ids = binary.LittleEndian.AppendUint64(ids, uint64(int64(r.Token)))
	}
	return rows, ids, nil
}

// tableRows are the embedding's rows of those rows that are tokens.
func tableRows(m *Model, rows []state.Row) ([]float32, error) {
	ids := make([]int32, 0, len(rows))
	for _, r := range rows {
		if r.Token >= 0 {
			ids = append(ids, r.Token)
		}
	}
	return m.EmbedRows(ids)
}

func finite(x float32) bool { return math.Float32bits(x)&0x7f800000 != 0x7f800000 }

// LoadConfig says what a snapshot file may be. The zero value takes what this
// package wrote for the same model.
type LoadConfig struct {
	// TrustIdentity also takes files of the reference implementation, whose identity
	// cannot be checked here: only the rows of known ids are compared with the model.
	TrustIdentity bool
	// Limit is the largest number of rows; 0 means the model's context.
	Limit int
}

// LoadSender reads a snapshot file and runs its rows. Everything is checked before
// anything is run: a file that is damaged, or of another model, is refused with an
// error that wraps ErrSnapshot and says what differs.
func LoadSender(ctx context.Context, m *Model, path string, cfg LoadConfig) (*Sender, error) {
	limit := m.Info.Context
	if cfg.Limit < 0 {
		return nil, fail(ErrOption, "bad_limit", "a limit of %d rows: want a positive number, or 0 for the model's context", cfg.Limit)
	}
	if cfg.Limit > 0 && (limit == 0 || cfg.Limit < limit) {
		limit = cfg.Limit
	}
	if limit == 0 {
		limit = unlimited
	}
	data, err := readSnapshot(path, m, limit)
	if err != nil {
		return nil, err
	}
	s, err := parseSnapshot(ctx, m, filepath.Base(path), data, limit, cfg.TrustIdentity)
	if err != nil {
		return nil, err
	}
	r, err := FromRows(ctx, m, s.Rows)
	if err != nil {
		return nil, err
	}
	r.Latent, r.Inherited, r.NoIDs = s.Latent, s.Inherited, s.NoIDs
	if err := r.Validate(); err != nil {
		r.Release()
		return nil, err
	}
	return r, nil
}

const (
	headerRoom = 1 << 20 // more bytes than any snapshot's header has
	unlimited  = 1 << 20 // rows, of a model whose context has no limit
)

// readSnapshot reads a file that is no larger than a snapshot of limit rows.
func readSnapshot(path string, m *Model, limit int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("rclc: loading a snapshot: %w", err)
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("rclc: loading a snapshot: %w", err)
	}
	if !fi.Mode().IsRegular() {
		return nil, fail(ErrSnapshot, "snapshot_format", "%s is no regular file", path)
	}
	if most := headerRoom + int64(limit)*int64(4*m.Info.Hidden+8); fi.Size() > most {
		return nil, fail(ErrSnapshot, "snapshot_length", "%s has %d bytes: a snapshot of %d rows of %d values has at most %d", path, fi.Size(), limit, m.Info.Hidden, most)
	}
	data := make([]byte, fi.Size()) // the file's own
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, fmt.Errorf("rclc: loading a snapshot: %s: %w", path, err)
	}
	return data, nil
}

// parseSnapshot checks a file's bytes and returns its rows and counts, as a sender
// that has not run.
func parseSnapshot(ctx context.Context, m *Model, name string, data []byte, limit int, trust bool) (*Sender, error) {
	bad := func(code, format string, args ...any) error {
		return fail(ErrSnapshot, "snapshot_"+code, name+": "+format, args...)
	}
	set, err := checkpoint.Parse(name, data)
	if err != nil {
		return nil, bad("format", "%w", err)
	}
	defer set.Close()
	if set.Format() != checkpoint.Safetensors {
		return nil, bad("format", "the file is %s, no snapshot", set.Format())
	}
	meta, err := readMeta(set.Metadata(), trust)
	if err != nil {
		return nil, bad("format", "%w", err)
	}
	own := meta.Writer != ""
	if own {
		switch {
		case meta.Identity != m.Info.ID.String():
			return nil, bad("identity", "the snapshot is of model %.16s…, the agent's is %.16s…: load the weights and the config that it was made with, and keep keys and values in the same type", meta.Identity, m.Info.ID)
		case meta.Tokens != "" && m.Info.Tokens != (Digest{}) && meta.Tokens != hexDigest(m.Info.Tokens):
			return nil, bad("identity", "the snapshot's vocabulary is %.16s…, the model's %.16s…: bind the tokenizer that it was made with", meta.Tokens, hexDigest(m.Info.Tokens))
		}
	}
	for _, n := range set.Names() {
		if n != rowsName && n != idsName {
			return nil, bad("format", "the tensor %.40q has no place in a snapshot", n)
		}
	}
	rows, err := set.Tensor(rowsName)
	if err != nil {
		return nil, bad("format", "%w", err)
	}
	switch {
	case rows.Type != checkpoint.F32 && (own || rows.Type != checkpoint.BF16 && rows.Type != checkpoint.F16):
		return nil, bad("dtype", "rows are %v: want F32", rows.Type)
	case len(rows.Shape) != 2:
		return nil, bad("width", "rows have the shape %v: want [positions, %d]", rows.Shape, m.Info.Hidden)
	case rows.Shape[1] != m.Info.Hidden:
		return nil, bad("width", "rows have %d values, the model takes %d", rows.Shape[1], m.Info.Hidden)
	case rows.Shape[0] < 1 || rows.Shape[0] > limit:
		return nil, bad("length", "%d rows: want 1 to %d", rows.Shape[0], limit)
	}
	n := rows.Shape[0]
	var ids []int64
	var idBytes []byte
	if _, ok := set.Info(idsName); ok {
		e, err := set.Tensor(idsName)
		switch {
		case err != nil:
			return nil, bad("ids", "%w", err)
		case e.Type != checkpoint.I64 || !slices.Equal(e.Shape, []int{n}):
			return nil, bad("ids", "ids are %v %v: want I64 [%d]", e.Type, e.Shape, n)
		}
		if ids, err = e.Int64s(); err != nil {
			return nil, bad("ids", "%w", err)
		}
		idBytes = e.Data
	} else {
		ids = slices.Repeat([]int64{-1}, n)
	}
	if own && content(rows.Data, idBytes) != meta.Content {
		return nil, bad("content", "rows and ids are not those that were saved: the file was damaged or edited")
	}
	if meta.Latent < 0 || meta.Latent >= n || meta.Inherited < 0 || meta.Inherited > n-meta.Latent {
		return nil, bad("counts", "%d inherited positions and a latent tail of %d in %d rows", meta.Inherited, meta.Latent, n)
	}
	for i, id := range ids {
		if id < -1 || id >= int64(m.Info.Vocab) || id >= 0 && i >= n-meta.Latent {
			return nil, bad("ids", "row %d of %d has the id %d: want -1 (in a latent tail of %d rows always) or one of the vocabulary of %d", i, n, id, meta.Latent, m.Info.Vocab)
		}
	}
	return snapshotRows(ctx, m, rows, ids, &Sender{Model: m, Latent: meta.Latent, Inherited: meta.Inherited}, bad)
}

// snapshotRows fills in the sender's rows: vectors where there is no id, and where
// there is one a proof that it stands for the same bits.
func snapshotRows(ctx context.Context, m *Model, e checkpoint.Entry, ids []int64, s *Sender, bad func(code, format string, args ...any) error) (*Sender, error) {
	v, err := e.Float32s()
	if err != nil {
		return nil, bad("dtype", "%w", err)
	}
	h := m.Info.Hidden
	for i, x := range v {
		if !finite(x) {
			return nil, bad("finite", "value %d of row %d is %v", i%h, i/h, x)
		}
	}
	s.Rows = make([]state.Row, len(ids))
	for i, id := range ids {
		s.Rows[i].Token = int32(id)
		if id < 0 {
			s.Rows[i].Vec = v[i*h : (i+1)*h : (i+1)*h]
		}
	}
	for at := 0; at < len(ids); at += rowBlock {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		block := s.Rows[at:min(at+rowBlock, len(ids))]
		table, err := tableRows(m, block)
		if err != nil {
			return nil, err
		}
		for i, r := range block {
			if r.Token < 0 {
				continue
			}
			if !sameBits(table[:h], v[(at+i)*h:(at+i+1)*h]) {
				return nil, bad("rows", "row %d has the id %d and not the model's row of it: the weights are others", at+i, r.Token)
			}
			table = table[h:]
		}
	}
	return s, nil
}

// readMeta reads the JSON in the metadata. Writer is "" for a file of the reference.
func readMeta(all map[string]string, trust bool) (snapshotMeta, error) {
	var m snapshotMeta
	own, isOwn := all[ownMeta]
	foreign, isForeign := all[foreignMeta]
	switch {
	case isOwn:
		if err := strict(own, &m, "format", "writer", "identity", "tokens", "content", "latent_steps", "inherited_positions"); err != nil {
			return m, err
		}
		if m.Writer == "" {
			return m, errors.New("the metadata names no writer")
		}
	case isForeign && trust:
		var f foreignSnapshot
		if err := strict(foreign, &f, "format", "identity", "latent_steps", "inherited_positions"); err != nil {
			return m, err
		}
		m = snapshotMeta{Format: f.Format, Latent: f.Latent, Inherited: f.Inherited}
	case isForeign:
		return m, errors.New("the file is of another implementation, whose model identity cannot be checked: set TrustIdentity to take it all the same")
	default:
		return m, errors.New("the file has no snapshot's metadata")
	}
	if m.Format != 1 {
		return m, fmt.Errorf("format %d of snapshots: this program reads 1", m.Format)
	}
	return m, nil
}

// strict decodes a JSON object that has exactly these fields, each once.
func strict(text string, into any, fields ...string) error {
	if len(text) > 1<<16 {
		return fmt.Errorf("metadata of %d bytes", len(text))
	}
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	t, err := d.Token()
	if err != nil || t != json.Delim('{') {
		return errors.New("the metadata is no JSON object")
	}
	var seen []string
	for d.More() {
		k, err := d.Token()
		if err != nil {
			return fmt.Errorf("the metadata is no JSON object: %w", err)
		}
		name, _ := k.(string)
		if !slices.Contains(fields, name) || slices.Contains(seen, name) {
			return fmt.Errorf("the metadata's field %.40q is unknown or there twice", name)
		}
		seen = append(seen, name)
		var skip json.RawMessage
		if err := d.Decode(&skip); err != nil {
			return fmt.Errorf("the metadata's field %.40q: %w", name, err)
		}
		if string(skip) == "null" {
			return fmt.Errorf("the metadata's field %.40q is null", name)
		}
	}
	for _, f := range fields {
		if !slices.Contains(seen, f) {
			return fmt.Errorf("the metadata lacks the field %q", f)
		}
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		return fmt.Errorf("the metadata: %w", err)
	}
	return nil
}

// Save writes the state that the agent would send to a file; see [Sender.Save]. It
// is refused while inputs are pending or deliveries queued, which a file could not
// hold.
func (a *Agent) Save(ctx context.Context, path string) error {
	if err := a.lock(ctx); err != nil {
		return err
	}
	defer a.unlock()
	if err := a.idle("save"); err != nil {
		return err
	}
	s, err := a.resolve(ctx)
	if err != nil {
		return err
	}
	defer s.Release()
	return s.Save(ctx, path)
}

// Load makes what LoadSender reads the state that the agent retains. History, queue
// and limits stay the agent's own. It is refused while inputs are pending or
// deliveries queued.
func (a *Agent) Load(ctx context.Context, path string, cfg LoadConfig) error {
	if err := a.lock(ctx); err != nil {
		return err
	}
	defer a.unlock()
	if err := a.idle("load"); err != nil {
		return err
	}
	if cfg.Limit == 0 || a.limit > 0 && cfg.Limit > a.limit {
		cfg.Limit = a.limit
	}
	s, err := LoadSender(ctx, a.model, path, cfg)
	if err != nil {
		return err
	}
	a.install(s)
	return nil
}

// idle refuses what pending inputs or queued deliveries would be lost by.
func (a *Agent) idle(what string) error {
	if a.pending != nil {
		return errPending(a.pending)
	}
	if n := a.Len(); n > 0 {
		return fail(ErrPending, "queued", "%d deliveries are queued: pop and record them before you %s", n, what)
	}
	return nil
}

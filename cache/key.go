package cache

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"math"

	"samebit/state"
)

// Key separates prefixes that must never meet although their rows are equal.
type Key struct {
	Model state.ID // of the states: weights, config, adapters, numerics version
	Route int32    // which of several paths through the model the rows took
	Extra [32]byte // whatever else rows do not determine; see Domain
}

// Domain is what besides the model's fingerprint separates equal rows. Its fields
// are tagged and measured before they are hashed, so an adapter named like a
// tenant is not that tenant.
type Domain struct {
	Adapter []byte   // digest of adapters that Key.Model does not know of
	Tenant  string   // salt: tenants with different salts never share anything
	Inputs  [][]byte // digests of other inputs, such as images, in their order
}

// Extra is the domain as a part of a Key: zeros for the zero Domain.
func (d Domain) Extra() [32]byte {
	if len(d.Adapter) == 0 && d.Tenant == "" && len(d.Inputs) == 0 {
		return [32]byte{}
	}
	h := sha256.New()
	tagged(h, "samebit.cache.domain", nil)
	tagged(h, "adapter", d.Adapter)
	tagged(h, "tenant", []byte(d.Tenant))
	for _, in := range d.Inputs {
		tagged(h, "input", in)
	}
	return [32]byte(h.Sum(nil))
}

// tagged writes a name and bytes so that no other pair gives the same text.
func tagged(h hash.Hash, tag string, b []byte) {
	var n [16]byte
	binary.LittleEndian.PutUint64(n[:8], uint64(len(tag)))
	binary.LittleEndian.PutUint64(n[8:], uint64(len(b)))
	h.Write(n[:])
	h.Write([]byte(tag))
	h.Write(b)
}

// EntryID names an entry in a Store: a digest of key and rows, the same in every
// process. It is an address only; rows are compared before an entry is used.
type EntryID [sha256.Size]byte

func (id EntryID) String() string { return hex.EncodeToString(id[:]) }

// Entry is a checkpoint as a Store knows it.
type Entry struct {
	ID   EntryID
	Key  Key
	Rows []state.Row // all rows before the checkpoint
}

// NewEntry names the checkpoint after rows.
func NewEntry(k Key, rows []state.Row) Entry {
	h := sha256.New()
	d := k.digest()
	h.Write(d[:])
	buf := make([]byte, 0, 4096)
	for _, r := range rows {
		if r.Vec == nil {
			buf = binary.LittleEndian.AppendUint32(buf, uint32(r.Token))
		} else {
			buf = binary.LittleEndian.AppendUint64(buf, uint64(len(r.Vec))<<32|math.MaxUint32)
			for _, v := range r.Vec {
				buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(v))
			}
		}
		if len(buf) > 2048 {
			h.Write(buf)
			buf = buf[:0]
		}
	}
	h.Write(buf)
	return Entry{ID: EntryID(h.Sum(nil)), Key: k, Rows: rows}
}

func (k Key) digest() [32]byte {
	h := sha256.New()
	tagged(h, "samebit.cache.key", nil)
	tagged(h, "model", k.Model[:])
	tagged(h, "route", binary.LittleEndian.AppendUint32(nil, uint32(k.Route)))
	tagged(h, "extra", k.Extra[:])
	return [32]byte(h.Sum(nil))
}

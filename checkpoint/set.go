package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync/atomic"
	"unsafe"
)

// Format is the kind of files a Set came from.
type Format uint8

const (
	Safetensors Format = iota + 1
	GGUF
)

// String returns "safetensors" or "GGUF".
func (f Format) String() string {
	switch f {
	case Safetensors:
		return "safetensors"
	case GGUF:
		return "GGUF"
	}
	return fmt.Sprintf("Format(%d)", uint8(f))
}

// Set is an opened checkpoint: one GGUF file, one safetensors file, or the
// safetensors shards of a model directory. Make one with Open.
type Set struct {
	Meta Meta // key/value pairs; empty for safetensors

	path               string
	format             Format
	files              []mapping
	records            []record       // by file, then in data order
	index              map[string]int // name → records
	config, generation []byte
	metadata           map[string]string
	closed             atomic.Bool
}

// mapping is one mapped file.
type mapping struct {
	path     string
	data     []byte
	borrowed bool // memory of the caller of Parse: neither unmapped nor advised
}

// Path returns what was given to Open.
func (s *Set) Path() string { return s.path }

// Format returns the kind of the files.
func (s *Set) Format() Format { return s.format }

// Config returns the text of config.json, nil when a single file was opened.
func (s *Set) Config() []byte { return slices.Clone(s.config) }

// GenerationConfig returns the text of generation_config.json, nil without one.
func (s *Set) GenerationConfig() []byte { return slices.Clone(s.generation) }

// Metadata returns the __metadata__ of a safetensors file, of the first shard
// when there are several; nil without one.
func (s *Set) Metadata() map[string]string { return maps.Clone(s.metadata) }

// Names returns the names of all tensors, sorted.
func (s *Set) Names() []string { return slices.Sorted(maps.Keys(s.index)) }

// Infos describes all tensors in the order in which the files hold them.
func (s *Set) Infos() []Info {
	out := make([]Info, len(s.records))
	for i := range out {
		out[i] = s.records[i].Info
	}
	return out
}

// Info describes one tensor; false when there is none of that name.
func (s *Set) Info(name string) (Info, bool) {
	i, ok := s.index[name]
	if !ok {
		return Info{}, false
	}
	return s.records[i].Info, true
}

// Tensor returns a view of the named tensor. It fails with ErrNoTensor for an
// unknown name, ErrUnsupported for a type that is only listed (see Type.Opens),
// and fs.ErrClosed after Close.
func (s *Set) Tensor(name string) (Entry, error) {
	i, ok := s.index[name]
	if !ok {
		return Entry{}, fmt.Errorf("checkpoint: %s: tensor %q: %w", s.path, clip(name), ErrNoTensor)
	}
	if s.closed.Load() {
		return Entry{}, fmt.Errorf("checkpoint: %s: tensor %q: %w", s.path, clip(name), fs.ErrClosed)
	}
	r := &s.records[i]
	if !r.Type.Opens() {
		return Entry{}, fmt.Errorf("checkpoint: %s: tensor %q has type %v: %w; convert the model to F32, F16, BF16 or one of Q8_0, Q4_0 ... Q6_K",
			s.path, clip(name), r.Type, ErrUnsupported)
	}
	end := r.Offset + r.Bytes
	data := s.files[r.file].data[r.Offset:end:end]
	return Entry{Name: r.Name, Type: r.Type, Shape: r.Shape, Data: aligned(data, r.Type)}, nil
}

type hint uint8

const (
	dontNeed hint = iota
	willNeed
	sequential
)

// Release says that the bytes of e, which may also be a part of a tensor's Data,
// are not needed for now, so that packing a model does not hold it in memory
// twice. The view stays valid: the system reads the file again when it is used.
// Only pages that lie wholly inside are released.
func (s *Set) Release(e Entry) { s.advise(e.Data, dontNeed) }

// WillNeed says that the bytes of e will be read soon, so that the system may
// begin to load them.
func (s *Set) WillNeed(e Entry) { s.advise(e.Data, willNeed) }

// Sequential says that the whole set will be read from front to back.
func (s *Set) Sequential() {
	if s.closed.Load() {
		return
	}
	for _, f := range s.files {
		if !f.borrowed {
			advise(f.data, sequential)
		}
	}
}

// advise finds the mapping that part lies in (none when it is a copy) and passes
// the hint for its pages: inner ones for dontNeed, touched ones otherwise.
func (s *Set) advise(part []byte, h hint) {
	if len(part) == 0 || s.closed.Load() {
		return
	}
	page := uintptr(os.Getpagesize())
	at := uintptr(unsafe.Pointer(unsafe.SliceData(part)))
	for _, f := range s.files {
		if f.borrowed {
			continue
		}
		base := uintptr(unsafe.Pointer(unsafe.SliceData(f.data)))
		if at < base || at-base >= uintptr(len(f.data)) {
			continue
		}
		begin, end := at-base, at-base+uintptr(len(part))
		if h == dontNeed {
			begin = (begin + page - 1) / page * page
			if end < uintptr(len(f.data)) { // the last page of a file has no other user
				end = end / page * page
			}
		} else {
			begin = begin / page * page
		}
		if begin < end && end <= uintptr(len(f.data)) {
			advise(f.data[begin:end], h)
		}
		return
	}
}

// Close unmaps the files. No Entry.Data may be read from then on. Closing twice
// is harmless.
func (s *Set) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	return s.unmapAll()
}

func (s *Set) unmapAll() error {
	var errs []error
	for _, f := range s.files {
		if f.borrowed {
			continue
		}
		if err := unmap(f.data); err != nil {
			errs = append(errs, fmt.Errorf("checkpoint: close %s: %w", f.path, err))
		}
	}
	return errors.Join(errs...)
}

package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	configName     = "config.json"
	generationName = "generation_config.json"
	singleName     = "model.safetensors"
	indexName      = "model.safetensors.index.json"

	maxConfig = 16 << 20 // bytes
)

// Open maps a checkpoint: a .gguf file, a .safetensors file, or a directory
// with config.json and either model.safetensors.index.json with its shards or
// model.safetensors (the index wins). The header is checked completely, see the
// package comment; no weight is read. The error says which file breaks which
// rule and wraps ErrCorrupt, ErrUnsupported or the error of the file system.
func Open(path string) (*Set, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	s := &Set{path: path, index: make(map[string]int)}
	if fi.IsDir() {
		err = s.openDir()
	} else {
		err = s.openFile(path, nil)
	}
	if err != nil {
		s.closed.Store(true)
		return nil, errors.Join(err, s.unmapAll())
	}
	return s, nil
}

// openFile maps one file and adds its tensors. For a shard, shard is the part of
// the index that speaks of it and must agree with the file.
func (s *Set) openFile(path string, shard map[string]bool) error {
	data, err := mapPath(path)
	if err != nil {
		return err
	}
	s.files = append(s.files, mapping{path: path, data: data})
	return s.parse(path, data, shard)
}

// Parse is Open of a file whose bytes are in memory already; name stands for it
// in errors. The set keeps data, which must not change while it is in use.
func Parse(name string, data []byte) (*Set, error) {
	s := &Set{path: name, index: make(map[string]int), files: []mapping{{path: name, data: data, borrowed: true}}}
	if err := s.parse(name, data, nil); err != nil {
		return nil, err
	}
	return s, nil
}

// OpenFS is Open of a model directory that is the root of a file system, such as one
// of embedded files; name stands for it in errors. Its one model.safetensors is read
// into memory.
func OpenFS(name string, files fs.FS) (*Set, error) {
	read := func(file string, limit int) ([]byte, error) {
		b, err := fs.ReadFile(files, file)
		if err != nil {
			return nil, fmt.Errorf("checkpoint: open %s: %w", name, err)
		}
		if len(b) > limit {
			return nil, corrupt(name+"/"+file, "%d bytes are more than the limit of %d", len(b), limit)
		}
		return b, nil
	}
	config, err := read(configName, maxConfig)
	if err != nil {
		return nil, err
	}
	generation, err := read(generationName, maxConfig)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, b := range [][]byte{config, generation} {
		if b != nil && !json.Valid(b) {
			return nil, corrupt(name, "%s and %s must be JSON", configName, generationName)
		}
	}
	weights, err := read(singleName, math.MaxInt)
	if err != nil {
		return nil, err
	}
	s, err := Parse(name+"/"+singleName, weights)
	if err != nil {
		return nil, err
	}
	s.path, s.config, s.generation = name, config, generation
	return s, nil
}

// parse adds the tensors of the last file.
func (s *Set) parse(path string, data []byte, shard map[string]bool) error {
	format, parse := Safetensors, parseSafetensors
	switch {
	case len(data) >= 4 && string(data[:4]) == ggufMagic:
		format, parse = GGUF, parseGGUF
	case strings.EqualFold(filepath.Ext(path), ".gguf"):
		parse = parseGGUF // for its message
	}
	if what := foreign(data); what != "" {
		return corrupt(path, "it is %s", what)
	}
	c, err := parse(path, data)
	if err != nil {
		return err
	}
	if s.format != 0 && s.format != format {
		return corrupt(path, "shard is a %v file", format)
	}
	return s.add(path, format, c, shard)
}

func (s *Set) add(path string, format Format, c *contents, shard map[string]bool) error {
	for _, r := range c.records {
		if shard != nil && !shard[r.Name] {
			return corrupt(path, "tensor %q is not said to be here by %s", clip(r.Name), indexName)
		}
		r.File, r.file = filepath.Base(path), len(s.files)-1
		s.index[r.Name] = len(s.records)
		s.records = append(s.records, r)
	}
	if len(c.records) < len(shard) {
		for _, name := range slices.Sorted(maps.Keys(shard)) {
			if _, ok := s.index[name]; !ok {
				return corrupt(path, "tensor %q is missing, %s says that it is here", clip(name), indexName)
			}
		}
	}
	if s.format == 0 {
		s.format, s.metadata = format, c.metadata
		s.Meta = c.meta
		s.Meta.closed = &s.closed
	}
	return nil
}

func (s *Set) openDir() (err error) {
	if s.config, err = readJSON(filepath.Join(s.path, configName), maxConfig); err != nil {
		return err
	}
	s.generation, err = readJSON(filepath.Join(s.path, generationName), maxConfig)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	indexPath := filepath.Join(s.path, indexName)
	b, err := readFile(indexPath, maxHeader)
	if errors.Is(err, fs.ErrNotExist) {
		err := s.openFile(filepath.Join(s.path, singleName), nil)
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("checkpoint: open %s: neither %s nor %s is there: %w", s.path, indexName, singleName, err)
		}
		return err
	}
	if err != nil {
		return err
	}
	weights, err := parseIndex(indexPath, b)
	if err != nil {
		return err
	}
	shards := make(map[string]map[string]bool)
	for name, file := range weights {
		if shards[file] == nil {
			shards[file] = make(map[string]bool)
		}
		shards[file][name] = true
	}
	for _, file := range slices.Sorted(maps.Keys(shards)) {
		err := s.openFile(filepath.Join(s.path, file), shards[file])
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("checkpoint: open %s: shard %s of %d tensors is missing: download it again: %w", s.path, clip(file), len(shards[file]), err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// mapPath maps a regular file that is not empty.
func mapPath(path string) ([]byte, error) {
	f, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	switch size := fi.Size(); {
	case size == 0:
		return nil, corrupt(path, "file is empty")
	case size > math.MaxInt:
		return nil, unsupported(path, "file of %d bytes on a 32-bit system", size)
	}
	data, err := mapFile(f, int(fi.Size()))
	if err != nil {
		return nil, fmt.Errorf("checkpoint: map %s (%d bytes): %w", path, fi.Size(), err)
	}
	return data, nil
}

// openRegular asks what path is before it opens it, because opening a pipe would
// wait for the other end.
func openRegular(path string) (*os.File, error) {
	fi, err := os.Stat(path)
	if err == nil && !fi.Mode().IsRegular() {
		return nil, fmt.Errorf("checkpoint: open %s: not a regular file (%v)", path, fi.Mode().Type())
	}
	var f *os.File
	if err == nil {
		f, err = os.Open(path)
	}
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	return f, nil
}

// foreign recognises what people often have in place of weights.
func foreign(data []byte) string {
	head := string(data[:min(len(data), 64)])
	switch {
	case strings.HasPrefix(head, "version https://git-lfs"):
		return "a Git LFS pointer and not the weights (fetch them with: git lfs pull)"
	case strings.HasPrefix(head, "PK\x03\x04"):
		return "a zip file, perhaps a PyTorch pickle (convert it to safetensors)"
	case strings.HasPrefix(head, "<!DOCTYPE"), strings.HasPrefix(head, "<html"):
		return "a web page"
	}
	return ""
}

// readFile reads a file of at most limit bytes.
func readFile(path string, limit int64) ([]byte, error) {
	f, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("checkpoint: read: %w", err)
	}
	if int64(len(b)) > limit {
		return nil, corrupt(path, "file has more than %d bytes", limit)
	}
	return b, nil
}

func readJSON(path string, limit int64) ([]byte, error) {
	b, err := readFile(path, limit)
	if err != nil {
		return nil, err
	}
	if !json.Valid(b) {
		var v any
		return nil, corrupt(path, "invalid JSON: %v", json.Unmarshal(b, &v))
	}
	return b, nil
}

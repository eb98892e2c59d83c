package checkpoint

import (
	"encoding/json"
	"path/filepath"
)

// Summary is what there is to say about a set in a few lines.
type Summary struct {
	Format       Format
	Architecture string // general.architecture, or config.json's first of architectures, or its model_type; "" when unknown
	Tensors      int
	Parameters   int64 // elements of all tensors
	Bytes        int64 // of all tensors
	Types        []TypeSummary
	Files        []FileSummary
}

// TypeSummary adds up the tensors of one type.
type TypeSummary struct {
	Type       Type
	Tensors    int
	Parameters int64
	Bytes      int64
}

// FileSummary is one mapped file.
type FileSummary struct {
	Name    string // base name
	Tensors int
	Bytes   int64 // of the file, header included
}

// Summary adds up the set. Types come in the order of their first use.
func (s *Set) Summary() Summary {
	sum := Summary{Format: s.format, Architecture: s.architecture(), Tensors: len(s.records)}
	for _, f := range s.files {
		sum.Files = append(sum.Files, FileSummary{Name: filepath.Base(f.path), Bytes: int64(len(f.data))})
	}
	at := make(map[Type]int)
	for _, r := range s.records {
		i, ok := at[r.Type]
		if !ok {
			i = len(sum.Types)
			at[r.Type] = i
			sum.Types = append(sum.Types, TypeSummary{Type: r.Type})
		}
		n, _ := mulDims(r.Shape) // checked by Open
		t := &sum.Types[i]
		t.Tensors++
		t.Parameters += int64(n)
		t.Bytes += r.Bytes
		sum.Parameters += int64(n)
		sum.Bytes += r.Bytes
		sum.Files[r.file].Tensors++
	}
	return sum
}

func (s *Set) architecture() string {
	if s.format == GGUF {
		name, _ := s.Meta.String("general.architecture")
		return name
	}
	var c struct {
		Architectures []string `json:"architectures"`
		ModelType     string   `json:"model_type"`
	}
	if json.Unmarshal(s.config, &c) == nil && len(c.Architectures) > 0 {
		return c.Architectures[0]
	}
	return c.ModelType
}

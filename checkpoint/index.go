package checkpoint

import (
	"path/filepath"
	"strings"
)

// parseIndex reads model.safetensors.index.json: {"weight_map": {tensor: file},
// ...}. File names must be plain names of .safetensors files, so that an index
// cannot reach out of its directory.
func parseIndex(file string, b []byte) (map[string]string, error) {
	if len(b) > maxHeader {
		return nil, corrupt(file, "index has %d bytes, at most %d are allowed", len(b), maxHeader)
	}
	s := &scanner{b: b}
	var (
		weights map[string]string
		last    string // shards repeat; keep one copy of each run
		top     = make(map[string]bool)
	)
	err := s.object(func(key string) error {
		if top[key] {
			return s.errorf("duplicate key %q", clip(key))
		}
		top[key] = true
		if key != "weight_map" {
			return s.skip(0)
		}
		weights = make(map[string]string)
		return s.object(func(name string) error {
			if _, ok := weights[name]; ok {
				return s.errorf("weight_map: duplicate key %q", clip(name))
			}
			shard, err := s.str(maxName)
			if err != nil {
				return err
			}
			if shard == last && last != "" {
				shard = last
			} else if !plainName(shard) {
				return s.errorf("weight_map: tensor %q is said to be in %q, which is no plain name of a .safetensors file in the same directory", clip(name), clip(shard))
			}
			weights[name], last = shard, shard
			return nil
		})
	})
	if err == nil {
		err = s.end()
	}
	if err != nil {
		return nil, corrupt(file, "%v", err)
	}
	if len(weights) == 0 {
		return nil, corrupt(file, "no weight_map, or an empty one")
	}
	return weights, nil
}

func plainName(name string) bool {
	return strings.HasSuffix(name, ".safetensors") && !strings.ContainsAny(name, "/\\:\x00") && filepath.IsLocal(name)
}

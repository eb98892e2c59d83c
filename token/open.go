package token

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Open reads a Hugging Face model directory: tokenizer.json, and where they
// exist tokenizer_config.json (chat template; names of the begin, end and
// padding tokens), chat_template.jinja (which goes before that template) and
// generation_config.json (further ids that end a reply).
func Open(dir string) (*Tokenizer, error) { return OpenFS(dir, os.DirFS(dir)) }

// OpenFS is Open of a file system whose root is the model directory; dir stands for
// it in errors.
func OpenFS(dir string, files fs.FS) (*Tokenizer, error) {
	data, err := readFile(dir, files, "tokenizer.json")
	if err != nil {
		return nil, err
	}
	if data == nil {
		return nil, fmt.Errorf("token: open %s: there is no tokenizer.json: copy it from where the weights came from (a GGUF file carries its vocabulary itself): %w", dir, fs.ErrNotExist)
	}
	t, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%w (in %s)", err, dir)
	}
	for name, apply := range map[string]func([]byte) error{
		"tokenizer_config.json":  t.applyConfig,
		"generation_config.json": t.applyGeneration,
	} {
		data, err := readFile(dir, files, name)
		if err != nil {
			return nil, err
		}
		if data == nil {
			continue
		}
		if err := apply(data); err != nil {
			return nil, fmt.Errorf("token: read %s: %w", filepath.Join(dir, name), err)
		}
	}
	template, err := readFile(dir, files, "chat_template.jinja")
	if err != nil {
		return nil, err
	}
	if template != nil {
		t.ChatTemplate = string(template)
	}
	return t, nil
}

// readFile returns nil if there is no such file.
func readFile(dir string, files fs.FS, name string) ([]byte, error) {
	info, err := fs.Stat(files, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("token: open: %w", err)
	}
	if info.Size() > maxFileBytes {
		return nil, fmt.Errorf("token: open %s: %d bytes are more than the limit of %d", filepath.Join(dir, name), info.Size(), maxFileBytes)
	}
	data, err := fs.ReadFile(files, name)
	if err != nil {
		return nil, fmt.Errorf("token: open: %w", err)
	}
	return data, nil
}

// tokenName is the name of a token: "x" or {"content": "x", ...} or null.
type tokenName string

func (n *tokenName) UnmarshalJSON(b []byte) error {
	var entry struct{ Content string }
	if len(b) > 0 && b[0] == '{' {
		err := json.Unmarshal(b, &entry)
		*n = tokenName(entry.Content)
		return err
	}
	return json.Unmarshal(b, (*string)(n))
}

// template is Jinja text, or a list of named ones, of which "default" counts.
type template string

func (t *template) UnmarshalJSON(b []byte) error {
	if len(b) == 0 || b[0] != '[' {
		return json.Unmarshal(b, (*string)(t))
	}
	var list []struct{ Name, Template string }
	err := json.Unmarshal(b, &list)
	for _, e := range list {
		if e.Name == "default" {
			*t = template(e.Template)
		}
	}
	return err
}

func (t *Tokenizer) applyConfig(data []byte) error {
	var c struct {
		BOS      tokenName `json:"bos_token"`
		EOS      tokenName `json:"eos_token"`
		Pad      tokenName `json:"pad_token"`
		Template template  `json:"chat_template"`
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return err
	}
	t.ChatTemplate = string(c.Template)
	for _, x := range []struct {
		field    *int32
		name     tokenName
		optional bool // some fine-tunes name a padding token that they never added
	}{{&t.BOS, c.BOS, false}, {&t.EOS, c.EOS, false}, {&t.Pad, c.Pad, true}} {
		if x.name == "" {
			continue
		}
		if *x.field = t.ID(string(x.name)); *x.field == NoToken && !x.optional {
			return fmt.Errorf("token %.40q is not in the vocabulary of tokenizer.json", string(x.name))
		}
	}
	t.AddStops(t.EOS)
	return nil
}

func (t *Tokenizer) applyGeneration(data []byte) error {
	var c struct {
		EOS json.RawMessage `json:"eos_token_id"` // an id or a list
	}
	if err := json.Unmarshal(data, &c); err != nil || c.EOS == nil {
		return err
	}
	var ids []int32
	if err := json.Unmarshal(c.EOS, &ids); err != nil {
		ids = make([]int32, 1)
		if err := json.Unmarshal(c.EOS, &ids[0]); err != nil {
			return fmt.Errorf("eos_token_id %.40s is neither an id nor a list of ids", c.EOS)
		}
	}
	t.AddStops(ids...)
	return nil
}

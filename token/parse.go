package token

import (
	"bytes"
	"fmt"
	"slices"
	"unicode/utf8"
)

const maxFileBytes = 1 << 29 // of a tokenizer.json; the largest known are 33 MB

// addedToken is an entry of added_tokens.
type addedToken struct {
	ID         int64  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// document is tokenizer.json with its two large parts left as text.
type document struct {
	added         []addedToken
	normalizer    *component
	preTokenizer  *component
	postProcessor *component
	decoder       *component
	model         model
}

type model struct {
	kind        string
	dropout     *float64
	unk         *string
	prefix      *string
	suffix      *string
	fallback    bool
	wholePieces bool
	vocab       []byte // {"token": id, ...}
	merges      []byte // ["a b", ...] or [["a", "b"], ...]
}

// Parse makes a Tokenizer from the text of a Hugging Face tokenizer.json. It
// keeps no reference to data. Truncation and padding in the file are ignored:
// they concern batches of texts for training.
//
// It fails when the file is damaged (broken JSON, an id given twice or beyond
// 2²⁰, a merge of unknown tokens) and, with [ErrUnsupported], when it asks for
// steps that this package does not have.
func Parse(data []byte) (*Tokenizer, error) {
	t, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("token: parse tokenizer.json: %w", err)
	}
	return t, nil
}

func parse(data []byte) (*Tokenizer, error) {
	if len(data) > maxFileBytes {
		return nil, fmt.Errorf("%d bytes are more than the limit of %d", len(data), maxFileBytes)
	}
	if !utf8.Valid(data) {
		return nil, fmt.Errorf("the text is not UTF-8")
	}
	doc, err := readDocument(data)
	if err != nil {
		return nil, err
	}
	t := &Tokenizer{BOS: NoToken, EOS: NoToken, Pad: NoToken, wholePieces: doc.model.wholePieces}
	if err := t.applyPipeline(doc); err != nil {
		return nil, err
	}
	odd, err := t.readVocab(doc.model.vocab)
	if err != nil {
		return nil, fmt.Errorf("model.vocab: %w", err)
	}
	for i, a := range doc.added {
		if err := t.putAdded(a, odd); err != nil {
			return nil, fmt.Errorf("added_tokens[%d]: %w", i, err)
		}
	}
	if err := t.seal(); err != nil {
		return nil, err
	}
	if err := t.readMerges(doc.model.merges); err != nil {
		return nil, fmt.Errorf("model.merges: %w", err)
	}
	if doc.model.unk != nil {
		for b, id := range t.byteID {
			if id < 0 {
				return nil, fmt.Errorf("%w: unk_token %q with no token for byte %#02x", ErrUnsupported, *doc.model.unk, b)
			}
		}
	}
	return t, t.applyTemplate(doc.postProcessor)
}

func readDocument(data []byte) (document, error) {
	var doc document
	c := cursor{data: data}
	seen := map[string]bool{}
	err := c.object(func(key []byte) error {
		name := string(key)
		if seen[name] {
			return c.fail("%.40q appears twice", name)
		}
		seen[name] = true
		var err error
		switch name {
		case "added_tokens":
			err = c.decode(&doc.added)
		case "normalizer":
			err = c.decode(&doc.normalizer)
		case "pre_tokenizer":
			err = c.decode(&doc.preTokenizer)
		case "post_processor":
			err = c.decode(&doc.postProcessor)
		case "decoder":
			err = c.decode(&doc.decoder)
		case "model":
			doc.model, err = readModel(&c)
		default:
			err = c.skip()
		}
		if err != nil {
			return fmt.Errorf("%.40s: %w", name, err)
		}
		return nil
	})
	if err == nil {
		err = c.end()
	}
	if err == nil && !seen["model"] {
		err = fmt.Errorf("there is no model")
	}
	return doc, err
}

func readModel(c *cursor) (model, error) {
	var m model
	seen := map[string]bool{}
	err := c.object(func(key []byte) (err error) {
		name := string(key)
		if seen[name] {
			return c.fail("%.40q appears twice", name)
		}
		seen[name] = true
		switch name {
		case "type":
			err = c.decode(&m.kind)
		case "dropout":
			err = c.decode(&m.dropout)
		case "unk_token":
			err = c.decode(&m.unk)
		case "continuing_subword_prefix":
			err = c.decode(&m.prefix)
		case "end_of_word_suffix":
			err = c.decode(&m.suffix)
		case "byte_fallback":
			err = c.decode(&m.fallback)
		case "ignore_merges":
			err = c.decode(&m.wholePieces)
		case "vocab":
			m.vocab, err = c.raw()
		case "merges":
			m.merges, err = c.raw()
		default:
			err = c.skip()
		}
		return err
	})
	if err != nil {
		return m, err
	}
	return m, m.check()
}

func (m *model) check() error {
	switch {
	case m.kind != "BPE" && m.kind != "":
		return fmt.Errorf("%w: model type %.40q, only BPE is known", ErrUnsupported, m.kind)
	case m.vocab == nil || m.merges == nil:
		return fmt.Errorf("a BPE model needs vocab and merges")
	case m.dropout != nil && *m.dropout != 0:
		return fmt.Errorf("%w: dropout %g", ErrUnsupported, *m.dropout)
	case m.prefix != nil && *m.prefix != "":
		return fmt.Errorf("%w: continuing_subword_prefix %.40q", ErrUnsupported, *m.prefix)
	case m.suffix != nil && *m.suffix != "":
		return fmt.Errorf("%w: end_of_word_suffix %.40q", ErrUnsupported, *m.suffix)
	case m.fallback:
		return fmt.Errorf("%w: byte_fallback", ErrUnsupported)
	}
	return nil
}

// readVocab fills the base tokens. It returns the keys that stand for no bytes
// (see appendBytes): they keep their id but take no part in encoding.
func (t *Tokenizer) readVocab(raw []byte) (odd map[string]bool, err error) {
	odd = map[string]bool{}
	c := cursor{data: raw}
	var b []byte
	err = c.object(func(key []byte) error {
		var ok bool
		b, ok = appendBytes(b[:0], key)
		id, err := c.integer()
		if err != nil {
			return err
		}
		kind := uint8(kindBase)
		if !ok {
			if odd[string(b)] {
				return fmt.Errorf("token %.40q appears twice", b)
			}
			kind, odd[string(b)] = kindOdd, true
		}
		return t.words.put(id, b, kind)
	})
	return odd, err
}

// putAdded adds an entry of added_tokens, which may repeat an entry of the
// vocabulary under the same id.
func (t *Tokenizer) putAdded(a addedToken, odd map[string]bool) error {
	if a.SingleWord || a.LStrip || a.RStrip || a.Normalized {
		return fmt.Errorf("%w: single_word, lstrip, rstrip and normalized of %.40q must be false, they are %t, %t, %t, %t",
			ErrUnsupported, a.Content, a.SingleWord, a.LStrip, a.RStrip, a.Normalized)
	}
	kind := uint8(kindAdded)
	if a.Special {
		kind |= kindSpecial
	}
	if a.ID >= 0 && a.ID < maxIDs && t.words.has(int32(a.ID)) {
		was := t.words.building(int32(a.ID))
		if b, ok := appendBytes(nil, []byte(a.Content)); !bytes.Equal(was, b) || ok == odd[a.Content] {
			return fmt.Errorf("id %d of %.40q belongs to %.40q", a.ID, a.Content, was)
		}
		t.words.kind[a.ID] |= kind
	} else if err := t.words.put(a.ID, []byte(a.Content), kind); err != nil {
		return err
	}
	return t.cutAt(a.Content, int32(a.ID), a.Special)
}

// cutAt makes encoding recognise an added token.
func (t *Tokenizer) cutAt(text string, id int32, special bool) error {
	if text == "" || len(text) > maxAdded {
		return fmt.Errorf("added token %d has %d bytes, outside 1..%d", id, len(text), maxAdded)
	}
	if other, n := t.anyAdded.longest(text); n == len(text) {
		return fmt.Errorf("%.40q has ids %d and %d", text, other, id)
	}
	t.anyAdded.add(text, id)
	if !special {
		t.plainAdded.add(text, id)
	}
	return nil
}

// seal is called when all tokens are there and merges are to come.
func (t *Tokenizer) seal() error {
	if err := t.words.seal(); err != nil {
		return err
	}
	for id, kind := range t.words.kind {
		if kind&kindAdded != 0 {
			text := t.words.at(int32(id))
			if base := t.words.lookup(text); base >= 0 && base != int32(id) {
				return fmt.Errorf("%.40q has ids %d and %d", text, base, id)
			}
		}
	}
	for b := range t.byteID {
		t.byteID[b] = t.words.lookup(string([]byte{byte(b)}))
	}
	return nil
}

// readMerges reads either form, "a b" or ["a", "b"].
func (t *Tokenizer) readMerges(raw []byte) error {
	c := cursor{data: raw}
	var m merger
	t.merges = newMergeTable()
	err := c.array(func(i int) error {
		if c.peek() != '[' {
			s, err := c.str()
			if err != nil {
				return err
			}
			return m.putLine(t, i, s)
		}
		parts := 0
		err := c.array(func(j int) error {
			s, err := c.str()
			switch parts++; j {
			case 0:
				m.left = append(m.left[:0], s...)
			case 1:
				m.right = append(m.right[:0], s...)
			}
			return err
		})
		if err == nil && parts != 2 {
			err = fmt.Errorf("merge %d has %d parts, not 2", i, parts)
		}
		if err != nil {
			return err
		}
		return m.put(t, i, m.left, m.right)
	})
	t.merges.result = slices.Clip(t.merges.result)
	return err
}

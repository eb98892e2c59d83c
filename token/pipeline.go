package token

import (
	"encoding/json"
	"fmt"
)

// component is a normalizer, pre-tokenizer, post-processor or decoder of
// tokenizer.json: the union of the fields that matter here.
type component struct {
	Type string `json:"type"`

	Normalizers   []component `json:"normalizers"` // of a Sequence
	PreTokenizers []component `json:"pretokenizers"`
	Processors    []component `json:"processors"`
	Decoders      []component `json:"decoders"`

	Pattern          map[string]string `json:"pattern"` // of Split: {"Regex": ...}
	Behavior         string            `json:"behavior"`
	Invert           bool              `json:"invert"`
	AddPrefixSpace   bool              `json:"add_prefix_space"` // of ByteLevel
	UseRegex         *bool             `json:"use_regex"`        // absent: true
	IndividualDigits bool              `json:"individual_digits"`

	Single        []map[string]templateItem `json:"single"` // of TemplateProcessing
	SpecialTokens map[string]templateToken  `json:"special_tokens"`
}

type templateItem struct {
	ID json.RawMessage `json:"id"` // a name
}

type templateToken struct {
	IDs []int64 `json:"ids"`
}

// steps returns the parts of a Sequence, c itself, or nothing for null.
func (c *component) steps() []component {
	switch {
	case c == nil:
		return nil
	case c.Type != "Sequence":
		return []component{*c}
	}
	for _, parts := range [][]component{c.Normalizers, c.PreTokenizers, c.Processors, c.Decoders} {
		if len(parts) > 0 {
			return parts
		}
	}
	return nil
}

func typeNames(steps []component) []string {
	names := []string{}
	for _, s := range steps {
		names = append(names, s.Type)
	}
	return names
}

// applyPipeline recognises normalizer, pre_tokenizer and decoder.
func (t *Tokenizer) applyPipeline(doc document) error {
	for _, s := range doc.normalizer.steps() {
		if s.Type != "NFC" {
			return fmt.Errorf("%w: normalizer %.40q, only NFC is known", ErrUnsupported, s.Type)
		}
		t.NFC = true
	}
	if s := doc.decoder.steps(); len(s) != 1 || s[0].Type != "ByteLevel" {
		return fmt.Errorf("%w: decoder %.100q, only ByteLevel is known", ErrUnsupported, typeNames(s))
	}
	pre, err := preTokenizerName(doc.preTokenizer.steps())
	if err != nil {
		return fmt.Errorf("pre_tokenizer: %w", err)
	}
	t.Pre = pre
	t.split, _ = newSplitter(pre)
	return nil
}

// preTokenizerName recognises the two shapes in use: Split by a known pattern,
// then ByteLevel without its own; and Digits one by one, then ByteLevel with
// its own, which is GPT-2's.
func preTokenizerName(steps []component) (string, error) {
	if len(steps) != 2 || steps[1].Type != "ByteLevel" || steps[0].Type != "Split" && steps[0].Type != "Digits" {
		return "", fmt.Errorf("%w: steps %.200q, known are [Split ByteLevel] and [Digits ByteLevel]", ErrUnsupported, typeNames(steps))
	}
	first, level := steps[0], steps[1]
	ownRegex := level.UseRegex == nil || *level.UseRegex
	switch {
	case level.AddPrefixSpace:
		return "", fmt.Errorf("%w: ByteLevel with add_prefix_space", ErrUnsupported)
	case first.Type == "Digits":
		if !first.IndividualDigits || !ownRegex {
			return "", fmt.Errorf("%w: Digits with individual_digits %t, ByteLevel with use_regex %t, both must be true",
				ErrUnsupported, first.IndividualDigits, ownRegex)
		}
		return "smollm", nil
	case first.Behavior != "Isolated" || first.Invert || ownRegex:
		return "", fmt.Errorf("%w: Split with behavior %.40q, invert %t, ByteLevel with use_regex %t; they must be \"Isolated\", false, false",
			ErrUnsupported, first.Behavior, first.Invert, ownRegex)
	}
	regex := first.Pattern["Regex"]
	for name, known := range splitRegex() {
		if regex == known {
			return name, nil
		}
	}
	return "", fmt.Errorf("%w: unknown Split pattern %.300q", ErrUnsupported, regex)
}

// applyTemplate takes Prefix and Suffix from the post-processor.
func (t *Tokenizer) applyTemplate(post *component) error {
	for _, s := range post.steps() {
		switch s.Type {
		case "ByteLevel": // concerns offsets only
		case "TemplateProcessing":
			if len(t.Prefix)+len(t.Suffix) > 0 {
				return fmt.Errorf("%w: post_processor with two templates", ErrUnsupported)
			}
			if err := t.applySingle(s); err != nil {
				return fmt.Errorf("post_processor: %w", err)
			}
		default:
			return fmt.Errorf("%w: post_processor %.40q, only TemplateProcessing is known", ErrUnsupported, s.Type)
		}
	}
	return nil
}

// applySingle reads the template for one text: special tokens around {"Sequence": {"id": "A"}}.
func (t *Tokenizer) applySingle(s component) error {
	dst, texts := &t.Prefix, 0
	for i, item := range s.Single {
		if len(item) != 1 {
			return fmt.Errorf("template item %d has %d keys, not one", i, len(item))
		}
		for what, v := range item {
			var name string
			if err := json.Unmarshal(v.ID, &name); err != nil {
				return fmt.Errorf("template item %d: %w", i, err)
			}
			switch what {
			case "Sequence":
				dst = &t.Suffix
				texts++
			case "SpecialToken":
				token, ok := s.SpecialTokens[name]
				if !ok {
					return fmt.Errorf("template names %.40q, which is not among its special_tokens", name)
				}
				for _, id := range token.IDs {
					if id < 0 || id >= maxIDs || !t.words.has(int32(id)) {
						return fmt.Errorf("template token %.40q has id %d, which is no token", name, id)
					}
					*dst = append(*dst, int32(id))
				}
			default:
				return fmt.Errorf("%w: template item %.40q", ErrUnsupported, what)
			}
		}
	}
	if texts != 1 {
		return fmt.Errorf("%w: template names the text %d times", ErrUnsupported, texts)
	}
	return nil
}

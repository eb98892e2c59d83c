package token

import "fmt"

// Vocab is what a GGUF file says about its tokenizer; whoever reads the file
// fills it. Ids are [NoToken] where the file has no such key.
type Vocab struct {
	Model  string   // tokenizer.ggml.model; "gpt2" is byte-level BPE
	Pre    string   // tokenizer.ggml.pre
	Tokens []string // tokenizer.ggml.tokens, by id
	Types  []int32  // tokenizer.ggml.token_type, by id; none means all normal
	Merges []string // tokenizer.ggml.merges, "a b" in rank order

	BOS, EOS, EOT, Pad, Unknown int32 // tokenizer.ggml.*_token_id

	// AddBOS is tokenizer.ggml.add_bos_token. Without the key it is true for
	// Pre "llama-bpe" and false for the others.
	AddBOS         bool
	AddSpacePrefix bool   // tokenizer.ggml.add_space_prefix, false without the key
	ChatTemplate   string // tokenizer.chat_template
}

// Values of Vocab.Types.
const (
	ggufNormal      = 1
	ggufUnknown     = 2
	ggufControl     = 3
	ggufUserDefined = 4
	ggufUnused      = 5 // padding of the embedding: a hole
	ggufByte        = 6
)

// FromVocab makes a Tokenizer from the metadata of a GGUF file. Such files
// name their pre-tokenizer, known are qwen2, qwen35, llama-bpe and smollm;
// the name implies NFC (qwen2, qwen35) and whole pieces (llama-bpe). Tokens of
// type control or unknown are special, user-defined ones are added.
//
// It fails like [Parse]. The Unknown token is not used: a byte without a token
// encodes to nothing.
func FromVocab(v Vocab) (*Tokenizer, error) {
	t, err := fromVocab(v)
	if err != nil {
		return nil, fmt.Errorf("token: read GGUF vocabulary: %w", err)
	}
	return t, nil
}

func fromVocab(v Vocab) (*Tokenizer, error) {
	switch {
	case v.Model != "gpt2":
		return nil, fmt.Errorf("%w: tokenizer.ggml.model %.40q, only gpt2 (byte-level BPE) is known", ErrUnsupported, v.Model)
	case v.AddSpacePrefix:
		return nil, fmt.Errorf("%w: tokenizer.ggml.add_space_prefix", ErrUnsupported)
	case len(v.Types) != 0 && len(v.Types) != len(v.Tokens):
		return nil, fmt.Errorf("%d tokens have %d types", len(v.Tokens), len(v.Types))
	case len(v.Tokens) > maxIDs:
		return nil, fmt.Errorf("%d tokens are more than the limit of %d", len(v.Tokens), maxIDs)
	}
	t := &Tokenizer{BOS: NoToken, EOS: NoToken, Pad: NoToken, ChatTemplate: v.ChatTemplate, Pre: v.Pre}
	var ok bool
	if t.split, ok = newSplitter(v.Pre); !ok {
		return nil, fmt.Errorf("%w: tokenizer.ggml.pre %.40q, known are qwen2, qwen35, llama-bpe, smollm", ErrUnsupported, v.Pre)
	}
	t.NFC = v.Pre == "qwen2" || v.Pre == "qwen35"
	t.wholePieces = v.Pre == "llama-bpe"
	if err := t.putTokens(v); err != nil {
		return nil, err
	}
	if err := t.seal(); err != nil {
		return nil, err
	}
	if err := t.putMerges(v.Merges); err != nil {
		return nil, err
	}
	for _, x := range []struct {
		field *int32
		id    int32
		key   string
	}{{&t.BOS, v.BOS, "bos"}, {&t.EOS, v.EOS, "eos"}, {&t.Pad, v.Pad, "padding"}} {
		if x.id != NoToken && !t.words.has(x.id) {
			return nil, fmt.Errorf("tokenizer.ggml.%s_token_id %d is no token; ids are 0..%d", x.key, x.id, t.Size()-1)
		}
		*x.field = x.id
	}
	t.AddStops(v.EOS, v.EOT)
	if v.AddBOS && t.BOS != NoToken {
		t.Prefix = []int32{t.BOS}
	}
	return t, nil
}

func (t *Tokenizer) putTokens(v Vocab) error {
	var b []byte
	for i, key := range v.Tokens {
		id, typ := int32(i), int32(ggufNormal)
		if len(v.Types) > 0 {
			typ = v.Types[i]
		}
		kind := uint8(kindBase)
		switch typ {
		case ggufUnused:
			continue
		case ggufNormal, ggufByte:
			var ok bool
			if b, ok = appendBytes(b[:0], []byte(key)); !ok {
				kind = kindOdd
			}
		case ggufControl, ggufUnknown, ggufUserDefined:
			b, kind = append(b[:0], key...), kindAdded
			if typ != ggufUserDefined {
				kind |= kindSpecial
			}
		default:
			return fmt.Errorf("token %d, %.40q, has type %d; known are 1..6", i, key, typ)
		}
		if err := t.words.put(int64(i), b, kind); err != nil {
			return err
		}
		if kind&kindAdded == 0 {
			continue
		}
		if err := t.cutAt(key, id, kind&kindSpecial != 0); err != nil {
			return err
		}
	}
	return nil
}

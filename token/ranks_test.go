package token

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strconv"
)

// parseRanks makes a Tokenizer from a tiktoken rank file: lines of a base64
// token and its id. There two neighbours merge when their bytes together are a
// token, at the rank of its id.
func parseRanks(data []byte, pre string, special map[string]int32) (*Tokenizer, error) {
	t := &Tokenizer{BOS: NoToken, EOS: NoToken, Pad: NoToken, Pre: pre, NFC: true}
	var ok bool
	if t.split, ok = newSplitter(pre); !ok {
		return nil, ErrUnsupported
	}
	for line := range bytes.Lines(data) {
		text, number, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		id, err := strconv.Atoi(string(number))
		if err != nil {
			return nil, err
		}
		b, err := base64.StdEncoding.DecodeString(string(text))
		if err != nil {
			return nil, err
		}
		if err := t.words.put(int64(id), b, kindBase); err != nil {
			return nil, err
		}
	}
	base := t.Size()
	for text, id := range special {
		if err := t.words.put(int64(id), []byte(text), kindAdded|kindSpecial); err != nil {
			return nil, err
		}
		if err := t.cutAt(text, id, true); err != nil {
			return nil, err
		}
	}
	if err := t.seal(); err != nil {
		return nil, err
	}
	t.merges = newMergeTable()
	for id := range int32(base) {
		t.merges.result = append(t.merges.result, id)
		whole := t.words.at(id)
		for i := 1; i < len(whole); i++ {
			l, r := t.words.lookup(whole[:i]), t.words.lookup(whole[i:])
			if l < 0 || r < 0 {
				continue
			}
			if t.merges.put(l, r, uint32(id)) != noRank {
				return nil, fmt.Errorf("pair %d, %d twice", l, r)
			}
		}
	}
	return t, nil
}

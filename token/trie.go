package token

// A trie finds added tokens in text. Siblings are a list: added tokens are
// few and mostly share their beginning.
type trie struct {
	nodes []trieNode // nodes[0] is the root
	first [256]bool  // bytes that begin some token
}

type trieNode struct {
	child, sibling int32 // 0 is none
	id             int32 // token that ends here, or NoToken
	b              byte
}

func (t *trie) add(text string, id int32) {
	if len(t.nodes) == 0 {
		t.nodes = append(t.nodes, trieNode{id: NoToken})
	}
	t.first[text[0]] = true
	at := int32(0)
	for i := range len(text) {
		next := t.step(at, text[i])
		if next == 0 {
			next = int32(len(t.nodes))
			t.nodes = append(t.nodes, trieNode{b: text[i], sibling: t.nodes[at].child, id: NoToken})
			t.nodes[at].child = next
		}
		at = next
	}
	t.nodes[at].id = id
}

func (t *trie) step(at int32, b byte) int32 {
	for c := t.nodes[at].child; c != 0; c = t.nodes[c].sibling {
		if t.nodes[c].b == b {
			return c
		}
	}
	return 0
}

// longest returns the longest token that text begins with and its length in
// bytes, which is 0 if there is none.
func (t *trie) longest(text string) (id int32, n int) {
	if text == "" || !t.first[text[0]] {
		return NoToken, 0
	}
	id = NoToken
	at := int32(0)
	for i := range len(text) {
		if at = t.step(at, text[i]); at == 0 {
			break
		}
		if t.nodes[at].id >= 0 {
			id, n = t.nodes[at].id, i+1
		}
	}
	return id, n
}

// find returns the first place of a token in text, the longest there:
// text[start:end] is token id. Without one, start is len(text).
func (t *trie) find(text string) (start, end int, id int32) {
	if len(t.nodes) > 0 {
		for i := range len(text) {
			if !t.first[text[i]] {
				continue
			}
			if id, n := t.longest(text[i:]); n > 0 {
				return i, i + n, id
			}
		}
	}
	return len(text), len(text), NoToken
}

package token

import "unicode/utf8"

// splitRegex returns the Split patterns of tokenizer.json by pre-tokenizer
// name. Go's regexp has no look-ahead, so [splitter] matches them by hand.
func splitRegex() map[string]string {
	return map[string]string{
		"qwen2":     `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
		"qwen35":    `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
		"llama-bpe": `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	}
}

// splitter cuts text into pieces. Every byte belongs to a piece; bytes that
// are not UTF-8 count as symbols.
type splitter struct {
	classes *classTable
	letter  class // what counts as a letter: letters, in qwen35 also marks
	digits  int   // most number characters in a piece
	gpt2    bool  // smollm: each number character alone, the rest by GPT-2's pattern
}

// newSplitter knows the names that GGUF files use.
func newSplitter(pre string) (splitter, bool) {
	s := splitter{classes: classes(), letter: isLetter, digits: 1}
	switch pre {
	case "qwen2":
	case "qwen35":
		s.letter |= isMark
	case "llama-bpe":
		s.digits = 3
	case "smollm":
		s.gpt2 = true
	default:
		return splitter{}, false
	}
	return s, true
}

// next returns the length of the first piece of text, which must not be empty.
func (s *splitter) next(text string) int {
	if s.gpt2 {
		return s.nextGPT2(text)
	}
	if n := contraction(text, true); n > 0 {
		return n
	}
	c, size := s.classes.at(text, 0)
	// [^\r\n\p{L}\p{N}]?\p{L}+
	if c&s.letter != 0 {
		return s.run(text, size, s.letter)
	}
	if c&(isNumber|isBreak) == 0 {
		if n := s.run(text, size, s.letter); n > size {
			return n
		}
	}
	// \p{N}{1,digits}
	if c&isNumber != 0 {
		n := size
		for i := 1; i < s.digits && n < len(text); i++ {
			c, size := s.classes.at(text, n)
			if c&isNumber == 0 {
				break
			}
			n += size
		}
		return n
	}
	// ␠?[^\s\p{L}\p{N}]+[\r\n]*
	if n := s.symbols(text, s.letter); n > 0 {
		for n < len(text) && (text[n] == '\r' || text[n] == '\n') {
			n++
		}
		return n
	}
	return s.spaces(text, true, 0)
}

// nextGPT2 matches 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// in text from which each number character is cut first, so that ` ?\p{N}+`
// is one number and a number ends the text for the look-ahead.
func (s *splitter) nextGPT2(text string) int {
	if n := contraction(text, false); n > 0 {
		return n
	}
	c, size := s.classes.at(text, 0)
	if c&isNumber != 0 {
		return size
	}
	letters := 0
	if text[0] == ' ' {
		letters = 1
	}
	if n := s.run(text, letters, isLetter); n > letters {
		return n
	}
	if n := s.symbols(text, isLetter); n > 0 {
		return n
	}
	return s.spaces(text, false, isNumber)
}

// run returns the end of the run of the given classes that starts at byte at.
func (s *splitter) run(text string, at int, of class) int {
	for at < len(text) {
		c, size := s.classes.at(text, at)
		if c&of == 0 {
			break
		}
		at += size
	}
	return at
}

// symbols matches ␠?[^\s\p{L}\p{N}]+; 0 means no match.
func (s *splitter) symbols(text string, letter class) int {
	start := 0
	if text[0] == ' ' {
		start = 1
	}
	n := start
	for n < len(text) {
		c, size := s.classes.at(text, n)
		if c&(letter|isNumber|isSpace) != 0 {
			break
		}
		n += size
	}
	if n == start {
		return 0
	}
	return n
}

// spaces matches \s*[\r\n]+ (if breaks), \s+(?!\S) and \s+ at text, which
// begins with white space. A character of class end counts as the end of text.
func (s *splitter) spaces(text string, breaks bool, end class) int {
	n, last, lastBreak := 0, 0, 0
	atEnd := true
	for n < len(text) {
		c, size := s.classes.at(text, n)
		if c&isSpace == 0 {
			atEnd = c&end != 0
			break
		}
		last = n
		n += size
		if c&isBreak != 0 {
			lastBreak = n
		}
	}
	switch {
	case breaks && lastBreak > 0:
		return lastBreak
	case atEnd || last == 0:
		return n
	default:
		return last // one is left for the word that follows
	}
}

// contraction matches 's|'t|'re|'ve|'m|'ll|'d; 0 means no match. Ignoring case
// includes U+017F, the long s, which folds to s.
func contraction(text string, fold bool) int {
	if len(text) < 2 || text[0] != '\'' {
		return 0
	}
	lower := func(i int) byte {
		switch {
		case i >= len(text):
			return 0
		case fold && text[i] >= 'A' && text[i] <= 'Z':
			return text[i] + 'a' - 'A'
		}
		return text[i]
	}
	a, b := lower(1), lower(2)
	switch {
	case a == 's' || a == 't' || a == 'm' || a == 'd':
		return 2
	case a == 'r' && b == 'e' || a == 'v' && b == 'e' || a == 'l' && b == 'l':
		return 3
	case fold && a == 0xC5 && b == 0xBF: // ſ
		return 1 + utf8.RuneLen('ſ')
	}
	return 0
}

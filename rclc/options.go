package rclc

import (
	"strconv"
	"strings"
)

// ParseSelector returns the built-in selector of a name with options, such as
// "cacheback", "qsnap span=8" or "chunkkv chunk=16 window=32 kernel=5": what
// [Namer] gives, and what commands take. Options that are left out have their
// default; 0 is none.
func ParseSelector(name string) (Selector, error) {
	words := strings.Fields(name)
	if len(words) == 0 {
		return nil, fail(ErrOption, "selector_name", "no selector is named: want cacheback, qsnap or chunkkv")
	}
	value := map[string]int{}
	for _, w := range words[1:] {
		key, number, ok := strings.Cut(w, "=")
		n, err := strconv.Atoi(number)
		if _, twice := value[key]; !ok || err != nil || twice {
			return nil, fail(ErrOption, "selector_name", "option %q of selector %q: want each as name=number, once", w, name)
		}
		if n < 1 {
			code := "bad_span_size"
			if key == "window" || key == "kernel" {
				code = "bad_chunk_options"
			}
			return nil, fail(ErrOption, code, "option %q of selector %q: want at least 1", w, name)
		}
		value[key] = n
	}
	take := func(key string) int {
		n := value[key]
		delete(value, key)
		return n
	}
	var s Selector
	switch words[0] {
	case "cacheback":
		s = CacheBack{Span: take("span")}
	case "qsnap":
		s = QSnap{Span: take("span")}
	case "chunkkv":
		s = ChunkKV{Chunk: take("chunk"), Window: take("window"), Kernel: take("kernel")}
	default:
		return nil, fail(ErrOption, "selector_name", "selector %q is not known: want cacheback, qsnap or chunkkv", words[0])
	}
	for _, w := range words[1:] {
		if key, _, _ := strings.Cut(w, "="); value[key] != 0 {
			return nil, fail(ErrOption, "selector_name", "selector %s has no option %q", words[0], key)
		}
	}
	return s, nil
}

// SetSize sets Ratio and Budget from values that somebody gave in so many words, nil
// for one not given; 0 is not a default then but an error.
func (c *Config) SetSize(ratio, budget *int) error {
	switch {
	case ratio != nil && budget != nil:
		return fail(ErrOption, "ratio_and_budget", "a ratio of %d and a budget of %d: give one of them", *ratio, *budget)
	case ratio != nil && *ratio < 1:
		return fail(ErrOption, "bad_ratio", "a ratio of %d: want at least 1", *ratio)
	case budget != nil && *budget < 1:
		return fail(ErrOption, "bad_budget", "a budget of %d: want at least 1", *budget)
	}
	c.Ratio, c.Budget = 0, 0
	if ratio != nil {
		c.Ratio = *ratio
	}
	if budget != nil {
		c.Budget = *budget
	}
	return nil
}

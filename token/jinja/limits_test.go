package jinja

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// Hostile templates end with an error that names the line, soon and without
// using much memory.
func TestLimits(t *testing.T) {
	rep := strings.Repeat
	for name, text := range map[string]string{
		"endless loops":         "\n{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}",
		"big output":            "\n{% for a in range(99999) %}" + rep("x", 1000) + "{% endfor %}",
		"repeat":                "\n{{ 'ab' * 999999999999 }}",
		"repeat list":           "\n{{ [1] * 999999999999 }}",
		"repeat, 32 bits":       "\n{{ 'ab' * 2147483648 }}",
		"repeat list, 32 bits":  "\n{{ [1] * 4294967296 }}",
		"centre, 32 bits":       "\n{{ 'a'.center(4294967297) }}",
		"batch, 32 bits":        "\n{{ [1]|batch(268435457, 0)|list }}",
		"indent, 32 bits":       "\n{{ ('a\n' * 65537)|indent(65536) }}",
		"doubling":              "\n{% set ns = namespace(s='x') %}{% for a in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
		"doubling by concat":    "\n{% set ns = namespace(s='x') %}{% for a in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
		"doubling list":         "\n{% set ns = namespace(s=[1]) %}{% for a in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
		"doubling by replace":   "\n{% set ns = namespace(s='x') %}{% for a in range(99) %}{% set ns.s = ns.s|replace('x', 'xxxx') %}{% endfor %}",
		"doubling by join":      "\n{% set ns = namespace(s='x') %}{% for a in range(99) %}{% set ns.s = [ns.s, ns.s]|join %}{% endfor %}",
		"endless recursion":     "\n{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
		"branching recursion":   "\n{% macro m(n) %}{% if n > 0 %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(100) }}",
		"list in itself":        "\n{% set l = [] %}{% set _ = l.append(l) %}{{ l }}",
		"list in itself, json":  "\n{% set l = [] %}{% set _ = l.append(l) %}{{ l|tojson }}",
		"list in itself, equal": "\n{% set l = [] %}{% set m = [] %}{% set _ = l.append(m) %}{% set _ = m.append(l) %}{{ l == m }}",
		"shared lists, str":     "\n{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
		"shared lists, equal":   "\n{% set ns = namespace(l=[1], m=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% set ns.m = [ns.m, ns.m] %}{% endfor %}{{ ns.l == ns.m }}",
		"deep brackets":         "\n{{ " + rep("(", 100000) + "1" + rep(")", 100000) + " }}",
		"deep lists":            "\n{{ " + rep("[", 100000) + rep("]", 100000) + " }}",
		"deep not":              "\n{{ " + rep("not ", 100000) + "1 }}",
		"deep minus":            "\n{{ " + rep("-", 100000) + "1 }}",
		"long chain":            "\n{{ 1" + rep(" + 1", 100000) + " }}",
		"long attribute chain":  "\n{{ d" + rep(".d", 100000) + " }}",
		"deep blocks":           "\n" + rep("{% if 1 %}", 100000) + rep("{% endif %}", 100000),
		"wide format":           "\n{{ '%999999999d'|format(1) }}",
		"wide format method":    "\n{{ '{:>999999999}'.format(1) }}",
		"wide indent":           "\n{{ 'a\nb'|indent(999999999) }}",
		"wide centre":           "\n{{ 'a'.center(9999999999) }}",
		"json indent":           "\n{{ [[1]]|tojson(indent=999999999) }}",
		"quadratic strip":       "\n{% set s = 'a' * 9999999 %}{% for i in range(99999) %}{% set x = s.strip('b') %}{% endfor %}",
		"quadratic search":      "\n{% set s = 'a' * 9999999 %}{% for i in range(99999) %}{% set x = 'b' in s %}{% endfor %}",
		"power":                 "\n{{ 9 ** 99999999 }}",
		"append in loop":        "\n{% set l = [1] %}{% for i in l %}{% for j in range(99999) %}{% set _ = l.extend(l) %}{% endfor %}{% endfor %}",
		"not enough text":       "\n{% if ",
		"filter chain":          "\n{{ 1" + rep("|string", 100000) + " }}",
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			tpl, err := Parse(name, text)
			if err == nil {
				if testing.Short() {
					tpl.Limits = Limits{Output: 1 << 20, Steps: 1_000_000}
				}
				_, err = tpl.Render(map[string]any{"d": map[string]any{"d": 1}})
			}
			var e *Error
			if !errors.As(err, &e) || e.Line != 2 || e.Template != name {
				t.Errorf("got %v, want an error in line 2", err)
			}
			if d := time.Since(start); d > 20*time.Second {
				t.Errorf("took %v", d)
			}
		})
	}
}

func TestErrorLine(t *testing.T) {
	for text, line := range map[string]int{
		"a\n\n{{ x.y }}": 3,
		"{% if true %}\n{% for i in [1] %}\n{{ raise_exception('no') }}{% endfor %}{% endif %}": 3,
		"a\n{% set x = 'a\nb\nc' %}\n{{ 1 / 0 }}":                                               5,
		"{{ 1 }}\n{% foo %}": 2,
		"{#\n\n#}\n{{ 'a }}": 4,
	} {
		tpl, err := Parse("t", text)
		if err == nil {
			_, err = tpl.Render(nil)
		}
		var e *Error
		if !errors.As(err, &e) || e.Line != line {
			t.Errorf("%q: got %v, want an error in line %d", text, err, line)
		}
	}
}

// Integers that leave an int of 32 bits are as large there as elsewhere.
func TestLargeIntegers(t *testing.T) {
	for text, want := range map[string]string{
		"{{ 'abc'[::1099511627776] }}":              "a",
		"{{ [1, 2, 3][-4294967296:4294967296] }}":   "[1, 2, 3]",
		"{{ 'aba'|replace('a', 'c', 4294967296) }}": "cbc",
		"{{ 'a b c'.rsplit(' ', 4294967296) }}":     "['a', 'b', 'c']",
	} {
		tpl, err := Parse("t", text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := tpl.Render(nil); err != nil || got != want {
			t.Errorf("%s: got %q, %v; want %q", text, got, err, want)
		}
	}
}

// A template cannot change the caller's values, and renders the same twice.
func TestInputUntouched(t *testing.T) {
	tpl, err := Parse("t", "{% set _ = l.append(4) %}{% set _ = m.update({'k': 2}) %}{{ l }}{{ m }}")
	if err != nil {
		t.Fatal(err)
	}
	m := &Map{}
	m.Set("k", 1)
	l, err := FromJSON([]byte(`[1]`))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got, err := tpl.Render(map[string]any{"l": l, "m": m})
		if want := "[1, 4]{'k': 2}"; err != nil || got != want {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
}

func TestFromJSON(t *testing.T) {
	for text, want := range map[string]string{
		`{"b":1,"a":{"z":[1,2.0,1e3,true,null]},"b":3}`: `{'b': 3, 'a': {'z': [1, 2.0, 1000.0, True, None]}}`,
		`123456789012345678901234567890`:                `123456789012345678901234567890`,
		`"\u00e9<&>"`:                                   `é<&>`,
		` [] `:                                          `[]`,
	} {
		v, err := FromJSON([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		tpl, _ := Parse("t", "{{ v }}")
		if got, err := tpl.Render(map[string]any{"v": v}); err != nil || got != want {
			t.Errorf("%s: got %s, %v; want %s", text, got, err, want)
		}
	}
	for _, bad := range []string{"", "{", "[1,]", "1 2", "{'a':1}", strings.Repeat("[", 5000), `{"a"}`, "nul"} {
		if _, err := FromJSON([]byte(bad)); err == nil {
			t.Errorf("%.20q: no error", bad)
		}
	}
}

func FuzzRender(f *testing.F) {
	for _, n := range []string{"qwen2.5", "qwen3", "qwen3.5", "smollm2"} {
		f.Add(templateText(f, n))
	}
	f.Add(chatML)
	for _, c := range readOracle(f).Cases {
		f.Add(*c[0])
	}
	for _, s := range []string{"{% for a, b in d.items() %}{{ a ~ b|tojson }}{% endfor %}", "{{ s[::-1].split('l', 1)|join('-') }}{{ '%05.2f' % 1.5 }}{{ '{:>5}'.format(s) }}",
		"{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{% call(x) m(1) %}{% endcall %}", "{%- raw -%} x {% endraw %}{# c #}{% set ns.x = 1 %}"} {
		f.Add(s)
	}
	vars := map[string]any{"s": "hällo", "n": 3, "l": []any{1, "a", nil}, "d": map[string]any{"k": "v"},
		"messages": []Message{{Role: "system", Content: "s"}, {Role: "user", Content: "u"}, {Role: "assistant", Content: "a"}}, "add_generation_prompt": true}
	f.Fuzz(func(t *testing.T, text string) {
		defer time.AfterFunc(10*time.Second, func() { panic("no end after 10 s: " + text) }).Stop()
		tpl, err := Parse("fuzz", text)
		if err == nil {
			tpl.Limits = Limits{Output: 1 << 16, Steps: 10000}
			_, err = tpl.Render(vars)
		}
		var e *Error
		if err != nil && !errors.As(err, &e) {
			t.Fatalf("error of type %T: %v", err, err)
		}
	})
}

func FuzzFromJSON(f *testing.F) {
	f.Add([]byte(`{"a":[1,2.5,"x",null,true,{"b":{}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := FromJSON(data)
		if err != nil {
			return
		}
		tpl, _ := Parse("t", "{{ v }}{{ v|tojson }}")
		if _, err := tpl.Render(map[string]any{"v": v}); err != nil {
			t.Fatal(err)
		}
	})
}

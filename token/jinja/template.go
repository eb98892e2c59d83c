// Package jinja renders chat templates: the part of the Jinja language that
// published models use, with the settings and extra functions of the
// transformers library, so that a prompt comes out byte for byte as it does
// there.
//
// Supported: if, for (with filter, else, break, continue, the loop variable),
// set (also blocks, unpacking and namespaces), macro, call, filter, with, raw,
// generation; all of jinja2's operators; Python's str, list and dict methods,
// printing and truth; jinja2's common filters and tests. Not supported:
// inheritance, includes, imports, recursive loops, async, autoescaping.
//
// Templates come with downloaded models and are not trusted: nesting, steps,
// and the sizes of output and values are limited, and no template can reach
// anything but the variables it is given.
package jinja

import (
	"fmt"
	"strings"
)

const (
	maxNesting    = 150    // brackets and blocks in the source
	maxEval       = 10_000 // nested evaluations: long chains a + b + …, macros
	maxCalls      = 200    // nested macro calls
	maxValueDepth = 200    // lists in lists
	maxRange      = 100_000
	perItem       = 16 // bytes an element of a list counts
)

// Limits bounds what one rendering may do. Zero fields have defaults.
type Limits struct {
	Output int // bytes of output, and of any one value made; all values together may have 64 times that; 0 means 16 MiB
	Steps  int // evaluations and loop turns; 0 means 20 million
}

// Template is a parsed template. It may be rendered by several goroutines.
type Template struct {
	Limits Limits
	name   string
	body   []stmt
}

// Error is why a template cannot be parsed or rendered, and where.
type Error struct {
	Template string
	Line     int // 1 is the first
	Msg      string
	Raised   bool // the template itself called raise_exception(Msg)
}

func (e *Error) Error() string {
	if e.Raised {
		return fmt.Sprintf("jinja: template %s, line %d: the template refused: %s", e.Template, e.Line, e.Msg)
	}
	return fmt.Sprintf("jinja: template %s, line %d: %s", e.Template, e.Line, e.Msg)
}

// fail leaves the parser or renderer; [catch] makes an error of it.
func fail(name string, line int, format string, args ...any) {
	panic(&Error{Template: name, Line: line, Msg: fmt.Sprintf(format, args...)})
}

// catch turns a failure into *err and lets every other panic pass.
func catch(err *error) {
	switch x := recover().(type) {
	case nil:
	case *Error:
		*err = x
	default:
		panic(x)
	}
}

// Parse reads a template; name stands for it in errors, which are of type
// *[Error].
func Parse(name, text string) (t *Template, err error) {
	defer catch(&err)
	p := &parser{name: name, toks: lex(name, text)}
	return &Template{name: name, body: p.block()}, nil
}

// Render returns the text the template makes of the given variables.
//
// A variable may be nil, a bool, number or string, a slice, a *[Map] or what
// [FromJSON] returned; a map[string]any has its keys sorted, since Go maps have
// no order; a func(string) (string, error) can be called; any other type
// (structs, say) is taken in its JSON form. Values are copied, the template
// cannot change them. Errors are of type *[Error].
func (t *Template) Render(vars map[string]any) (text string, err error) {
	r := &renderer{name: t.name, line: 1, out: &strings.Builder{}, limits: t.Limits}
	if r.limits.Output == 0 {
		r.limits.Output = 16 << 20
	}
	if r.limits.Steps == 0 {
		r.limits.Steps = 20_000_000
	}
	s := &scope{}
	for k, v := range vars {
		if f, ok := v.(func(string) (string, error)); ok {
			s.set(k, userFunction(k, f))
			continue
		}
		x, err := fromGo(v, 0)
		if err != nil {
			return "", &Error{Template: t.name, Line: 1, Msg: fmt.Sprintf("variable %s: %v", k, err)}
		}
		s.set(k, x)
	}
	defer catch(&err)
	r.run(t.body, &scope{outer: s})
	return r.out.String(), nil
}

func userFunction(name string, f func(string) (string, error)) *function {
	return &function{name, func(r *renderer, a *args) any {
		v := a.bind(r, 1, "text")
		out, err := f(r.str(v[0]))
		if err != nil {
			r.fail("%s: %v", name, err)
		}
		return out
	}}
}

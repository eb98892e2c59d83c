package jinja

import "strconv"

// parser turns tokens into statements. Grammar and precedence are jinja2's.
type parser struct {
	name  string
	toks  []token
	pos   int
	depth int
}

func (p *parser) tok() token { return p.toks[p.pos] }

func (p *parser) next() token {
	t := p.toks[p.pos]
	if t.kind != tEOF {
		p.pos++
	}
	return t
}

func (p *parser) fail(format string, args ...any) { fail(p.name, p.tok().line, format, args...) }

// is reports whether the next token is this operator or keyword.
func (p *parser) is(k kind, text string) bool { t := p.tok(); return t.kind == k && t.text == text }

func (p *parser) accept(k kind, text string) bool {
	ok := p.is(k, text)
	if ok {
		p.pos++
	}
	return ok
}

func (p *parser) expect(k kind, text string) {
	if !p.accept(k, text) {
		p.fail("expected %q, found %s", text, p.tok())
	}
}

func (t token) String() string {
	switch t.kind {
	case tEOF:
		return "the end of the template"
	case tString:
		return "string " + strconv.Quote(t.text)
	}
	return strconv.Quote(t.text)
}

func (p *parser) ident() string {
	t := p.tok()
	if t.kind != tName {
		p.fail("expected a name, found %s", t)
	}
	p.pos++
	return t.text
}

// enter guards the recursion of the parser.
func (p *parser) enter() {
	if p.depth++; p.depth > maxNesting {
		p.fail("nested deeper than %d", maxNesting)
	}
}

func (p *parser) leave() { p.depth-- }

// block reads statements until a block tag with one of the given names, which
// it leaves to be read; with no names, until the end of the template.
func (p *parser) block(ends ...string) []stmt {
	p.enter()
	defer p.leave()
	var out []stmt
	start := p.tok().line
	for {
		t := p.next()
		switch t.kind {
		case tEOF:
			if len(ends) > 0 {
				fail(p.name, start, "block is not closed: {%% %s %%} is missing", ends[len(ends)-1])
			}
			return out
		case tData:
			out = append(out, &textStmt{t.text})
		case tVarBegin:
			x := p.tuple(false)
			p.endTag(tVarEnd, "}}")
			out = append(out, &printStmt{t.line, x})
		case tBlockBegin:
			for _, e := range ends {
				if p.is(tName, e) {
					return out
				}
			}
			out = append(out, p.statement(t.line))
		}
	}
}

func (p *parser) endTag(k kind, text string) {
	if p.tok().kind != k {
		p.fail("expected %q, found %s", text, p.tok())
	}
	p.pos++
}

func (p *parser) endBlock() { p.endTag(tBlockEnd, "%}") }

// body reads up to {% end %} and eats that tag.
func (p *parser) body(end string) []stmt {
	p.endBlock()
	b := p.block(end)
	p.ident()
	p.endBlock()
	return b
}

func (p *parser) statement(line int) stmt {
	switch name := p.ident(); name {
	case "if":
		return p.ifStmt(line)
	case "for":
		return p.forStmt(line)
	case "set":
		return p.setStmt(line)
	case "macro":
		m := &macroStmt{line: line, name: p.ident()}
		p.expect(tOp, "(")
		m.params = p.params()
		m.body = p.body("endmacro")
		return m
	case "call":
		c := &callStmt{line: line}
		if p.accept(tOp, "(") {
			c.params = p.params()
		}
		c.call = p.expr()
		if _, ok := c.call.(*callExpr); !ok {
			p.fail("a call block needs a call")
		}
		c.body = p.body("endcall")
		return c
	case "filter":
		f := &filterStmt{line: line}
		f.chain = p.filters(&captured{}, true)
		f.body = p.body("endfilter")
		return f
	case "with":
		w := &withStmt{line: line}
		for p.tok().kind != tBlockEnd {
			if len(w.names) > 0 {
				p.expect(tOp, ",")
			}
			w.names = append(w.names, p.ident())
			p.expect(tOp, "=")
			w.vals = append(w.vals, p.expr())
		}
		w.body = p.body("endwith")
		return w
	case "generation":
		return &withStmt{line: line, body: p.body("endgeneration")}
	case "break", "continue":
		p.endBlock()
		if name == "break" {
			return &jumpStmt{ctlBreak}
		}
		return &jumpStmt{ctlContinue}
	default:
		p.pos--
		p.fail("unknown statement %q", name)
	}
	return nil
}

func (p *parser) ifStmt(line int) stmt {
	s := &ifStmt{line: line, cond: p.tuple(false)}
	p.endBlock()
	s.then = p.block("elif", "else", "endif")
	last := s
	for p.accept(tName, "elif") { // a chain is a list here, not nesting
		e := &ifStmt{line: p.tok().line, cond: p.tuple(false)}
		p.endBlock()
		e.then = p.block("elif", "else", "endif")
		last.elif, last = e, e
	}
	if p.accept(tName, "else") {
		p.endBlock()
		last.els = p.block("endif")
	}
	p.expect(tName, "endif")
	p.endBlock()
	return s
}

func (p *parser) forStmt(line int) stmt {
	s := &forStmt{line: line, target: p.target()}
	p.expect(tName, "in")
	s.iter = p.items(false)
	if p.accept(tName, "if") {
		s.cond = p.expr()
	}
	if p.is(tName, "recursive") {
		p.fail("recursive loops are not supported")
	}
	p.endBlock()
	s.body = p.block("else", "endfor")
	if p.accept(tName, "else") {
		p.endBlock()
		s.els = p.block("endfor")
	}
	p.expect(tName, "endfor")
	p.endBlock()
	return s
}

// target reads what is assigned to: a name, names (a, b), or ns.name.
func (p *parser) target() target {
	paren := p.accept(tOp, "(")
	var t target
	for {
		name := p.ident()
		if !paren && len(t.names) == 0 && p.accept(tOp, ".") {
			return target{names: []string{name}, attr: p.ident()}
		}
		t.names = append(t.names, name)
		if !p.accept(tOp, ",") {
			break
		}
		t.tuple = true
		if p.tok().kind != tName || p.is(tName, "in") {
			break
		}
	}
	if paren {
		p.expect(tOp, ")")
	}
	return t
}

func (p *parser) setStmt(line int) stmt {
	s := &setStmt{line: line, to: p.target()}
	if p.accept(tOp, "=") {
		s.val = p.tuple(false)
		p.endBlock()
		return s
	}
	s.val = p.filters(&captured{}, false)
	s.block = p.body("endset")
	s.isBlock = true
	return s
}

// params reads a macro's parameters after "(".
func (p *parser) params() []param {
	var out []param
	for !p.accept(tOp, ")") {
		if len(out) > 0 {
			p.expect(tOp, ",")
			if p.accept(tOp, ")") {
				break
			}
		}
		q := param{name: p.ident()}
		if p.accept(tOp, "=") {
			q.def = p.expr()
		} else if len(out) > 0 && out[len(out)-1].def != nil {
			p.fail("parameter %q without a default follows one with a default", q.name)
		}
		out = append(out, q)
	}
	return out
}

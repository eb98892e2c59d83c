package jinja

import (
	"strconv"
	"strings"
)

// tuple reads an expression, or a tuple if commas follow.
func (p *parser) tuple(paren bool) expr { return p.list(paren, p.expr) }

// items reads what a loop runs over: like tuple, but an "if" belongs to the loop.
func (p *parser) items(paren bool) expr { return p.list(paren, p.or) }

func (p *parser) list(paren bool, one func() expr) expr {
	var xs []expr
	comma := false
	for {
		if t := p.tok(); t.kind == tVarEnd || t.kind == tBlockEnd || t.kind == tOp && t.text == ")" {
			break
		}
		xs = append(xs, one())
		if !p.accept(tOp, ",") {
			break
		}
		comma = true
	}
	if !comma {
		if len(xs) == 1 {
			return xs[0]
		}
		if !paren {
			p.fail("expected an expression, found %s", p.tok())
		}
	}
	return &listExpr{kTuple, xs}
}

// Expressions, loosest first.

func (p *parser) expr() expr {
	p.enter()
	defer p.leave()
	x := p.or()
	for p.accept(tName, "if") {
		c := &condExpr{then: x, cond: p.or()}
		if p.accept(tName, "else") {
			c.els = p.expr()
		}
		x = c
	}
	return x
}

func (p *parser) or() expr {
	x := p.and()
	for p.accept(tName, "or") {
		x = &logicExpr{"or", x, p.and()}
	}
	return x
}

func (p *parser) and() expr {
	x := p.not()
	for p.accept(tName, "and") {
		x = &logicExpr{"and", x, p.not()}
	}
	return x
}

func (p *parser) not() expr {
	if p.accept(tName, "not") {
		p.enter()
		defer p.leave()
		return &notExpr{p.not()}
	}
	return p.comparison()
}

func (p *parser) comparison() expr {
	x := p.sum()
	var c *compareExpr
	for {
		t, op := p.tok(), ""
		switch {
		case t.kind == tOp && strings.Contains("== != < > <= >=", t.text) && strings.ContainsAny(t.text, "=<>") && t.text != "=":
			op = t.text
			p.pos++
		case p.accept(tName, "in"):
			op = "in"
		case t.kind == tName && t.text == "not" && p.toks[p.pos+1].kind == tName && p.toks[p.pos+1].text == "in":
			op = "not in"
			p.pos += 2
		default:
			if c != nil {
				return c
			}
			return x
		}
		if c == nil {
			c = &compareExpr{first: x}
		}
		c.ops, c.rest = append(c.ops, op), append(c.rest, p.sum())
	}
}

// binary reads a left-associative chain of the operators in ops.
func (p *parser) binary(ops string, operand func() expr) expr {
	x := operand()
	for {
		t := p.tok()
		if t.kind != tOp || !strings.Contains(ops, " "+t.text+" ") {
			return x
		}
		p.pos++
		x = &binaryExpr{t.text, x, operand()}
	}
}

func (p *parser) sum() expr     { return p.binary(" + - ", p.concat) }
func (p *parser) product() expr { return p.binary(" * / // % ", p.power) }
func (p *parser) power() expr   { return p.binary(" ** ", func() expr { return p.unary(true) }) }

func (p *parser) concat() expr {
	x := p.product()
	if !p.is(tOp, "~") {
		return x
	}
	c := &concatExpr{[]expr{x}}
	for p.accept(tOp, "~") {
		c.xs = append(c.xs, p.product())
	}
	return c
}

func (p *parser) unary(filters bool) expr {
	p.enter()
	defer p.leave()
	var x expr
	switch {
	case p.accept(tOp, "-"):
		x = &unaryExpr{"-", p.unary(false)}
	case p.accept(tOp, "+"):
		x = &unaryExpr{"+", p.unary(false)}
	default:
		x = p.primary()
	}
	x = p.postfix(x)
	if filters {
		x = p.filters(x, false)
	}
	return x
}

func (p *parser) primary() expr {
	t := p.next()
	switch t.kind {
	case tName:
		switch t.text {
		case "true", "True":
			return &constExpr{true}
		case "false", "False":
			return &constExpr{false}
		case "none", "None":
			return &constExpr{nil}
		}
		return &nameExpr{t.text}
	case tString:
		s := t.text
		for p.tok().kind == tString { // "a" "b" is "ab"
			s += p.next().text
		}
		return &constExpr{s}
	case tInt:
		n, err := strconv.ParseInt(intText(t.text), 0, 64)
		if err != nil {
			fail(p.name, t.line, "integer %s does not fit 64 bits", t.text)
		}
		return &constExpr{n}
	case tFloat:
		f, err := strconv.ParseFloat(strings.ReplaceAll(t.text, "_", ""), 64)
		if err != nil && f == 0 {
			fail(p.name, t.line, "bad number %s", t.text)
		}
		return &constExpr{f}
	case tOp:
		switch t.text {
		case "(":
			x := p.tuple(true)
			p.expect(tOp, ")")
			return x
		case "[":
			l := &listExpr{kind: kList}
			for !p.accept(tOp, "]") {
				if len(l.xs) > 0 {
					p.expect(tOp, ",")
					if p.accept(tOp, "]") {
						break
					}
				}
				l.xs = append(l.xs, p.expr())
			}
			return l
		case "{":
			d := &dictExpr{}
			for !p.accept(tOp, "}") {
				if len(d.keys) > 0 {
					p.expect(tOp, ",")
					if p.accept(tOp, "}") {
						break
					}
				}
				d.keys = append(d.keys, p.expr())
				p.expect(tOp, ":")
				d.vals = append(d.vals, p.expr())
			}
			return d
		}
	}
	fail(p.name, t.line, "expected an expression, found %s", t)
	return nil
}

// intText removes underscores and leading zeros (which Go would read as octal).
func intText(s string) string {
	s = strings.ReplaceAll(s, "_", "")
	if len(s) > 1 && s[0] == '0' && s[1] >= '0' && s[1] <= '9' {
		s = "0" + strings.TrimLeft(s, "0")
		if len(s) > 1 {
			s = s[1:]
		}
	}
	return s
}

func (p *parser) postfix(x expr) expr {
	for {
		switch {
		case p.accept(tOp, "."):
			if t := p.tok(); t.kind == tInt {
				p.pos++
				n, err := strconv.ParseInt(intText(t.text), 0, 64)
				if err != nil {
					p.fail("index %s does not fit 64 bits", t.text)
				}
				x = &indexExpr{x, &constExpr{n}}
			} else {
				x = &attrExpr{x, p.ident()}
			}
		case p.accept(tOp, "["):
			x = p.subscript(x)
		case p.is(tOp, "("):
			x = p.call(x)
		default:
			return x
		}
	}
}

func (p *parser) subscript(x expr) expr {
	var parts [3]expr
	n := 0
	for !p.is(tOp, "]") {
		if p.accept(tOp, ":") {
			if n++; n > 2 {
				p.fail("a slice has at most three parts")
			}
			continue
		}
		if parts[n] != nil {
			p.fail("expected \"]\", found %s", p.tok())
		}
		parts[n] = p.expr()
	}
	p.expect(tOp, "]")
	if n > 0 {
		return &sliceExpr{x, parts}
	}
	if parts[0] == nil {
		p.fail("empty subscript")
	}
	return &indexExpr{x, parts[0]}
}

func (p *parser) call(f expr) expr {
	return &callExpr{f, p.args()}
}

func (p *parser) args() argExprs {
	var a argExprs
	p.expect(tOp, "(")
	for n := 0; !p.accept(tOp, ")"); n++ {
		if n > 0 {
			p.expect(tOp, ",")
			if p.accept(tOp, ")") {
				break
			}
		}
		switch {
		case p.accept(tOp, "**"):
			a.starStar = p.expr()
		case p.accept(tOp, "*"):
			a.star = p.expr()
		case p.tok().kind == tName && p.toks[p.pos+1].kind == tOp && p.toks[p.pos+1].text == "=":
			name := p.ident()
			p.pos++
			a.kwNames, a.kw = append(a.kwNames, name), append(a.kw, p.expr())
		default:
			if len(a.kw) > 0 || a.star != nil || a.starStar != nil {
				p.fail("a positional argument follows a named one")
			}
			a.pos = append(a.pos, p.expr())
		}
	}
	return a
}

// filters reads |filter and "is test" after an expression; inline means that
// the first filter stands without "|", as in {% filter upper %}.
func (p *parser) filters(x expr, inline bool) expr {
	for {
		switch {
		case inline || p.accept(tOp, "|"):
			inline = false
			f := &filterExpr{x: x, name: p.dotted()}
			if p.is(tOp, "(") {
				f.args = p.args()
			}
			x = f
		case p.accept(tName, "is"):
			x = p.test(x)
		case p.is(tOp, "(") && !isCaptured(x):
			x = p.call(x)
		default:
			return x
		}
	}
}

func isCaptured(x expr) bool { _, ok := x.(*captured); return ok }

func (p *parser) dotted() string {
	name := p.ident()
	for p.accept(tOp, ".") {
		name += "." + p.ident()
	}
	return name
}

func (p *parser) test(x expr) expr {
	negate := p.accept(tName, "not")
	t := &testExpr{x: x, name: p.dotted()}
	next := p.tok()
	switch {
	case p.is(tOp, "("):
		t.args = p.args()
	case next.kind == tString, next.kind == tInt, next.kind == tFloat, p.is(tOp, "["), p.is(tOp, "{"):
		t.args.pos = []expr{p.postfix(p.primary())}
	case next.kind == tName:
		switch next.text {
		case "is":
			p.fail("tests cannot be chained: use parentheses or \"and\"")
		case "else", "or", "and", "if", "in", "not", "recursive":
		default:
			t.args.pos = []expr{p.postfix(p.primary())}
		}
	}
	if negate {
		return &notExpr{t}
	}
	return t
}

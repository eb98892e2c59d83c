package deps

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
)

// span is a piece of source text.
type span struct{ from, to token.Pos }

func (s span) has(p token.Pos) bool { return s.from <= p && p < s.to }

// write is one assignment to a place.
type write struct {
	end     token.Pos
	block   span // innermost block
	product bool // of a bare product
}

// holding knows which places of a function hold bare products, and where.
type holding struct {
	info   *types.Info
	writes map[string][]write // by place, in source order
	loops  []span             // bodies
}

// assignments collects the writes of a function body.
func assignments(body *ast.BlockStmt, info *types.Info, isFloat, product func(ast.Expr) bool, bare func(ast.Expr) ast.Expr) *holding {
	h := &holding{info: info, writes: map[string][]write{}}
	var blocks []span
	var stack []ast.Node
	add := func(e ast.Expr, n ast.Node, product bool) {
		k := h.key(bare(e))
		h.writes[k] = append(h.writes[k], write{n.End(), blocks[len(blocks)-1], product})
	}
	ast.Inspect(body, func(n ast.Node) bool {
		if n == nil {
			switch stack[len(stack)-1].(type) {
			case *ast.BlockStmt, *ast.CaseClause, *ast.CommClause:
				blocks = blocks[:len(blocks)-1]
			}
			stack = stack[:len(stack)-1]
			return true
		}
		stack = append(stack, n)
		switch v := n.(type) {
		case *ast.BlockStmt, *ast.CaseClause, *ast.CommClause:
			blocks = append(blocks, span{n.Pos(), n.End()})
		case *ast.ForStmt:
			h.loops = append(h.loops, span{v.Body.Pos(), v.Body.End()})
		case *ast.RangeStmt:
			h.loops = append(h.loops, span{v.Body.Pos(), v.Body.End()})
		case *ast.AssignStmt:
			for i, l := range v.Lhs {
				switch {
				case v.Tok == token.MUL_ASSIGN:
					p := isFloat(l) && !doubles(info, v.Rhs[0])
					add(l, n, p)
				case len(v.Lhs) == len(v.Rhs) && (v.Tok == token.ASSIGN || v.Tok == token.DEFINE):
					add(l, n, product(v.Rhs[i]))
				default:
					add(l, n, false)
				}
			}
		case *ast.ValueSpec:
			for i, l := range v.Names {
				add(l, n, len(v.Values) == len(v.Names) && product(v.Values[i]))
			}
		}
		return true
	})
	return h
}

// key names a place: a variable by where it is declared, others by their text.
func (h *holding) key(e ast.Expr) string {
	if id, ok := e.(*ast.Ident); ok {
		if o := h.info.ObjectOf(id); o != nil {
			return fmt.Sprintf("%s@%d", id.Name, o.Pos())
		}
	}
	return types.ExprString(e)
}

// at reports whether the place that e reads may hold a bare product there.
func (h *holding) at(e ast.Expr) bool {
	at := e.Pos()
	ws := h.writes[h.key(e)]
	// back looks from the last write in range for a product, up to a write that
	// every way to e passes.
	back := func(in span, ways func(write) bool) (held, sure bool) {
		for _, w := range slices.Backward(ws) {
			if !in.has(w.end - 1) {
				continue
			}
			if w.product {
				return true, true
			}
			if ways(w) {
				return false, true
			}
		}
		return false, false
	}
	if held, _ := back(span{0, at}, func(w write) bool { return w.block.has(at) }); held {
		return true
	}
	if _, ok := e.(*ast.Ident); !ok {
		return false // another element in each turn of a loop
	}
	for _, l := range h.loops {
		if !l.has(at) {
			continue
		}
		if _, sure := back(span{l.from, at}, func(w write) bool { return w.block.has(at) }); sure {
			continue
		}
		if held, _ := back(span{at, l.to}, func(w write) bool { return w.block == l }); held {
			return true
		}
	}
	return false
}

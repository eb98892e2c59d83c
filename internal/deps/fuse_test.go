package deps

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"math"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Go may fuse x·y + z into one rounding on arm64, and on amd64 with GOAMD64=v3,
// also across statements; only an explicit conversion of the product keeps the two
// roundings apart (numerics.md 1). The scanner finds float products that reach an
// addition or subtraction without one:
//
//	x*y + z                   directly
//	p := x*y; … p + z         through a variable, a field or an element
//	return x*y                through a caller that the compiler inlines into
//
// What it refuses may be harmless, but a conversion costs nothing.

// exact are the packages whose float arithmetic belongs to the contract.
var exact = []string{
	"internal/canon", "internal/blockq", "backend", "backend/ref", "backend/cpu",
	"backend/cpu/internal/attn", "backend/cpu/internal/delta", "backend/cpu/internal/gemm", "backend/cpu/internal/gemm/blas1",
	"backend/cpu/internal/quant", "backend/cpu/internal/vec", "state", "nn", "qwen3", "rclc", "sample", "grad", "grad/lm", "internal/archive", "qcc", "qcc/calib",
}

// inexact are functions of package math whose results differ between processors.
var inexact = strings.Fields(`Acos Acosh Asin Asinh Atan Atan2 Atanh Cbrt Cos Cosh Erf Erfc Erfcinv Erfinv Exp Exp2 Expm1
	Gamma Hypot J0 J1 Jn Lgamma Log Log10 Log1p Log2 Pow Sin Sincos Sinh Tan Tanh Y0 Y1 Yn`)

// finding is one place that the scanner refuses.
type finding struct {
	pos  token.Pos
	fn   string // the function
	what string
}

// harmless are functions that return a product on purpose.
var harmless = map[string]string{
	"quant.scales": "products of at most 24 bits are exact (numerics.md 9)",
}

// scan looks through one package's files.
func scan(fset *token.FileSet, files []*ast.File, info *types.Info) []finding {
	var out []finding
	name := ""
	add := func(pos token.Pos, format string, args ...any) {
		out = append(out, finding{pos, name, fmt.Sprintf(format, args...)})
	}
	isFloat := func(e ast.Expr) bool {
		tv, ok := info.Types[e]
		if !ok || tv.Type == nil || tv.Value != nil && tv.Value.Kind() != constant.Unknown {
			return false
		}
		if p, ok := tv.Type.(*types.TypeParam); ok {
			c, _ := p.Constraint().Underlying().(*types.Interface)
			return c != nil && c.NumEmbeddeds() > 0
		}
		b, ok := tv.Type.Underlying().(*types.Basic)
		return ok && (b.Info()&(types.IsFloat|types.IsComplex) != 0 || b.Kind() == types.Invalid)
	}
	// bare strips what does not stop fusing.
	var bare func(e ast.Expr) ast.Expr
	bare = func(e ast.Expr) ast.Expr {
		switch v := e.(type) {
		case *ast.ParenExpr:
			return bare(v.X)
		case *ast.UnaryExpr:
			if v.Op == token.SUB || v.Op == token.ADD {
				return bare(v.X)
			}
		}
		return e
	}
	product := func(e ast.Expr) bool {
		b, ok := bare(e).(*ast.BinaryExpr)
		return ok && b.Op == token.MUL && isFloat(b) && !doubles(info, b.X) && !doubles(info, b.Y)
	}
	for _, f := range files {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			name = f.Name.Name + "." + fn.Name.Name
			held := assignments(fn.Body, info, func(e ast.Expr) bool { return isFloat(e) }, product, bare)
			operand := func(e ast.Expr) {
				switch {
				case product(e):
					add(e.Pos(), "the product %s may be fused with the sum around it: convert it, float32(…)", types.ExprString(bare(e)))
				case isFloat(e) && held.at(bare(e)):
					add(e.Pos(), "%s holds a product that may be fused with this sum: convert it where it is formed, float32(…)", types.ExprString(bare(e)))
				}
			}
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				switch v := n.(type) {
				case *ast.BinaryExpr:
					if (v.Op == token.ADD || v.Op == token.SUB) && isFloat(v) {
						operand(v.X)
						operand(v.Y)
					}
				case *ast.AssignStmt:
					if (v.Tok == token.ADD_ASSIGN || v.Tok == token.SUB_ASSIGN) && isFloat(v.Lhs[0]) {
						operand(v.Lhs[0])
						operand(v.Rhs[0])
					}
				case *ast.ReturnStmt:
					for _, r := range v.Results {
						if product(r) || isFloat(r) && held.at(bare(r)) {
							add(r.Pos(), "%s returns the product %s, which may be fused with a sum of a caller it is inlined into: convert it, float32(…)", fn.Name.Name, types.ExprString(bare(r)))
						}
					}
				case *ast.CallExpr:
					s, ok := v.Fun.(*ast.SelectorExpr)
					if ok && isMath(info, s.X) && slices.Contains(inexact, s.Sel.Name) {
						add(v.Pos(), "math.%s differs between processors: use canon or math/big", s.Sel.Name)
					}
					if tv, ok := info.Types[v.Fun]; ok && tv.IsType() && len(v.Args) == 1 {
						if b, ok := tv.Type.Underlying().(*types.Basic); ok && b.Kind() == types.Float32 {
							if c, ok := bare(v.Args[0]).(*ast.CallExpr); ok {
								if s, ok := c.Fun.(*ast.SelectorExpr); ok && isMath(info, s.X) && s.Sel.Name == "FMA" {
									add(v.Pos(), "float32(math.FMA(…)) rounds twice: use canon.FMA32")
								}
							}
						}
					}
				}
				return true
			})
		}
	}
	return out
}

// doubles reports whether e is a constant power of two from 1 up, by which a
// product is exact (or overflows either way).
func doubles(info *types.Info, e ast.Expr) bool {
	v := info.Types[e].Value
	if v == nil {
		return false
	}
	f, _ := constant.Float64Val(constant.ToFloat(v))
	frac, _ := math.Frexp(f)
	return f >= 1 && frac == 0.5
}

// isMath reports whether e names package math.
func isMath(info *types.Info, e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	if !ok {
		return false
	}
	p, ok := info.Uses[id].(*types.PkgName)
	return ok && p.Imported().Path() == "math"
}

// loader type-checks packages of the tree from source. Of other packages it knows
// math and unsafe; names of the rest have no type, which float arithmetic cannot
// come from, so errors about them are dropped.
type loader struct {
	fset *token.FileSet
	ctx  build.Context
	std  types.Importer
	done map[string]*types.Package
	info map[string]*types.Info
	ast  map[string][]*ast.File
}

func newLoader(arch string, tags ...string) *loader {
	ctx := build.Default
	ctx.GOOS, ctx.GOARCH, ctx.CgoEnabled, ctx.BuildTags = "linux", arch, false, tags
	fset := token.NewFileSet()
	return &loader{fset: fset, ctx: ctx, std: importer.ForCompiler(fset, "source", nil),
		done: map[string]*types.Package{}, info: map[string]*types.Info{}, ast: map[string][]*ast.File{}}
}

func (l *loader) Import(p string) (*types.Package, error) {
	if p == "unsafe" {
		return types.Unsafe, nil
	}
	if pkg := l.done[p]; pkg != nil {
		return pkg, nil
	}
	var pkg *types.Package
	switch dir, ok := local(p); {
	case ok:
		bp, err := l.ctx.ImportDir(filepath.Join(root, dir), 0)
		if err != nil {
			return nil, err
		}
		var files []*ast.File
		for _, name := range bp.GoFiles {
			f, err := parser.ParseFile(l.fset, filepath.Join(root, dir, name), nil, 0)
			if err != nil {
				return nil, err
			}
			files = append(files, f)
		}
		if pkg, err = l.check(p, files); err != nil {
			return nil, err
		}
	case p == "math":
		m, err := l.std.Import(p)
		if err != nil {
			return nil, err
		}
		pkg = m
	default:
		pkg = types.NewPackage(p, path.Base(p))
		pkg.MarkComplete()
	}
	l.done[p] = pkg
	return pkg, nil
}

func (l *loader) check(p string, files []*ast.File) (*types.Package, error) {
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: l, Error: func(error) {}, FakeImportC: true, Sizes: types.SizesFor("gc", l.ctx.GOARCH)}
	pkg, _ := conf.Check(p, l.fset, files, info)
	if pkg == nil {
		return nil, fmt.Errorf("%s was not type-checked", p)
	}
	l.info[p], l.ast[p] = info, files
	return pkg, nil
}

// The numbers of package canon's functions, and of every kernel that must agree
// with them, are those of separately rounded steps on every processor.
func TestNothingFuses(t *testing.T) {
	seen := map[string]bool{}
	scanned := 0
	for _, l := range []*loader{newLoader("amd64"), newLoader("arm64"), newLoader("amd64", "noasm")} {
		for _, dir := range exact {
			p := module + "/" + dir
			if _, err := l.Import(p); err != nil {
				t.Fatal(err)
			}
			var fresh []*ast.File
			for _, f := range l.ast[p] {
				if name := l.fset.Position(f.Pos()).Filename; !seen[name] {
					seen[name] = true
					fresh = append(fresh, f)
				}
			}
			scanned += len(fresh)
			for _, f := range scan(l.fset, fresh, l.info[p]) {
				if harmless[f.fn] != "" && strings.Contains(f.what, "returns") {
					continue
				}
				t.Errorf("%s: %s", l.fset.Position(f.pos), f.what)
			}
		}
	}
	if scanned < 60 {
		t.Errorf("only %d files scanned", scanned)
	}
}

// The scanner finds what is planted and lets pass what is safe.
func TestScanner(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{"return x*y + z", "x * y may"},
		{"return (x*y) + z", "x * y may"},
		{"return z - -(x*y)", "x * y may"},
		{"z += x*y; return z", "x * y may"},
		{"z -= x*y; return z", "x * y may"},
		{"p := x*y; return p + z", "p holds"},
		{"var p = x*y; return z - p", "p holds"},
		{"x *= y; return x + z", "x holds"},
		{"x *= y; x += z; return float32(x)", "x holds"},
		{"s[0] = x*y; return s[0] + z", "s[0] holds"},
		{"if n > 1 { y = x*z } else { y = 0 }; return y + z", "y holds"},
		{"for range n { y = x + z; x = y*z }; return float32(y)", "x holds"},
		{"x *= y; x = min(x, 3); x += z; return float32(x)", ""},
		{"x *= 8; return x + z", ""},
		{"for i := range s { s[i] = (s[i] - x) * z }; return z", ""},
		{"return x * y", "returns"},
		{"p := x*y; return p", "returns"},
		{"return float32(float64(x)*float64(y) + float64(z))", "float64(x) * float64(y) may"},
		{"return float32(math.Exp(float64(x)))", "math.Exp"},
		{"return float32(math.FMA(float64(x), float64(y), float64(z)))", "rounds twice"},
		{"const a, b = 2, 3; return a*b + z", ""},
		{"return float32(x*y) + z", ""},
		{"p := float32(x*y); return p + z", ""},
		{"return s[n*n+1]", ""},
		{"n += n*n; return s[n]", ""},
		{"return x / y + z", ""},
		{"return float32(math.Sqrt(float64(x))) + z", ""},
		{"return float32(x * (y + z))", ""},
	} {
		l := newLoader("amd64")
		f, err := parser.ParseFile(l.fset, "snippet.go", "package p\nimport \"math\"\nvar _ = math.Pi\nfunc f(x, y, z float32, s []float32, n int) float32 {\n"+c.body+"\n}", 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.check("p", []*ast.File{f}); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range scan(l.fset, []*ast.File{f}, l.info["p"]) {
			got = append(got, f.what)
		}
		all := strings.Join(got, "; ")
		if c.want == "" && all != "" || !strings.Contains(all, c.want) {
			t.Errorf("%s: found %q, want %q", c.body, all, c.want)
		}
	}
}

// The reference runs on one goroutine: order is its meaning.
func TestReferenceIsPlain(t *testing.T) {
	for _, f := range files(t) {
		if f.dir != "backend/ref" || f.test {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n.(type) {
			case *ast.GoStmt, *ast.SelectStmt, *ast.ChanType:
				t.Errorf("%s: backend/ref uses no goroutines", fset.Position(n.Pos()))
			}
			return true
		})
	}
}

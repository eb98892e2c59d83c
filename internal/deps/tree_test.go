package deps

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// root is the way from this package to the top of the tree.
const root = "../.."

// module is the path in go.mod.
const module = "samebit"

// source is one Go file of the tree.
type source struct {
	path string // slash-separated, from the root
	dir  string // the same of its folder, "." for the root
	test bool
	gen  bool // generated
	text []byte
	ast  *ast.File
}

var fset = token.NewFileSet()

// tree parses every Go file once, those of all platforms.
var tree = sync.OnceValues(func() ([]*source, error) {
	var all []*source
	err := walk(func(path string, text []byte) error {
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		f, err := parser.ParseFile(fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := "."
		if i := strings.LastIndexByte(path, '/'); i >= 0 {
			dir = path[:i]
		}
		all = append(all, &source{path: path, dir: dir, test: strings.HasSuffix(path, "_test.go"), gen: ast.IsGenerated(f), text: text, ast: f})
		return nil
	})
	return all, err
})

func files(t *testing.T) []*source {
	t.Helper()
	all, err := tree()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 100 {
		t.Fatalf("found %d Go files: looking in the wrong place", len(all))
	}
	return all
}

// walk visits the text files of the tree, testdata folders left out.
func walk(visit func(path string, text []byte) error) error {
	return filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := e.Name()
		if e.IsDir() {
			if p != root && (name == "testdata" || name == "node_modules" || strings.HasPrefix(name, ".") && name != ".ci") {
				return fs.SkipDir
			}
			return nil
		}
		if !e.Type().IsRegular() {
			return nil
		}
		switch filepath.Ext(name) {
		case ".go", ".s", ".h", ".md", ".sh", ".py", ".c", ".txt", ".yml", ".yaml", ".json", "":
		default:
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil || bytes.IndexByte(text, 0) >= 0 {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		return visit(filepath.ToSlash(rel), text)
	})
}

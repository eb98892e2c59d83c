package deps

import (
	"bytes"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// most is the number of lines that no written file passes.
const most = 1000

func TestFilesAreSmall(t *testing.T) {
	err := walk(func(p string, text []byte) error {
		switch path.Ext(p) {
		case ".go", ".s", ".sh", ".md", ".py", ".c":
		default:
			return nil
		}
		head := text[:min(len(text), 400)]
		if bytes.Contains(head, []byte("// Code generated ")) && bytes.Contains(head, []byte("DO NOT EDIT")) {
			return nil
		}
		if n := bytes.Count(text, []byte("\n")); n > most {
			t.Errorf("%s has %d lines: at most %d are read with pleasure", p, n, most)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Every package says in its first sentence what it is for, and none has a name
// that says nothing.
func TestPackagesSayWhatTheyAre(t *testing.T) {
	said := map[string]bool{}
	for _, f := range files(t) {
		if f.test {
			continue
		}
		said[f.dir] = said[f.dir] || f.ast.Doc != nil && strings.TrimSpace(f.ast.Doc.Text()) != ""
		switch f.ast.Name.Name {
		case "util", "utils", "common", "helpers", "helper", "misc", "shared", "base", "lib":
			t.Errorf("%s: package %s: name it after what it is for", f.path, f.ast.Name.Name)
		}
	}
	for dir, ok := range said {
		if !ok {
			t.Errorf("%s: no file has a package comment", dir)
		}
	}
}

// A new home for the module must cost one edit of go.mod and one rewrite of
// imports. Generators write imports, so theirs are text.
func TestModulePathOnlyInImports(t *testing.T) {
	for _, f := range files(t) {
		if strings.HasPrefix(f.dir, "internal/gen") || f.dir == "internal/deps" {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if _, ok := n.(*ast.ImportSpec); ok {
				return false
			}
			l, ok := n.(*ast.BasicLit)
			if !ok || l.Kind != token.STRING {
				return true
			}
			s, err := strconv.Unquote(l.Value)
			if err != nil {
				t.Fatal(err)
			}
			rest, ok := strings.CutPrefix(s, module+"/")
			if ok && roomOf(rest) != nil {
				t.Errorf("%s: the text %q names a package by the module's path", fset.Position(l.Pos()), s)
			}
			return true
		})
	}
}

// banned is what the repository must not speak of: the places it was made in, and
// addresses that readers cannot reach. Written in pieces, since this file is
// searched too.
var banned = []*regexp.Regexp{
	regexp.MustCompile("/wo" + "rk/"),
	regexp.MustCompile("(^|[^a-z])sha" + "red/"),
	regexp.MustCompile(`\b(10|192\.168)(\.[0-9]{1,3}){2,3}:[0-9]+`),
	regexp.MustCompile(`://[a-z0-9.-]+\.(local|internal|corp|lan|intra)\b`),
	regexp.MustCompile(`(?i)\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`),
}

func TestNothingPrivate(t *testing.T) {
	err := walk(func(p string, text []byte) error {
		for i, line := range strings.Split(string(text), "\n") {
			for _, re := range banned {
				if m := re.FindString(line); m != "" {
					t.Errorf("%s:%d: %q has no place in the repository", p, i+1, m)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

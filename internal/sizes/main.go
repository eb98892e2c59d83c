// Command sizes prints how large each room of the tree is, in lines that are not
// blank: go run ./internal/sizes.
//
// Generated files and tests are counted by themselves. A room is a folder of the
// first level, or of the second in backend, internal, cmd and examples.
package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

// lines counts one room.
type lines struct{ code, tests, generated int }

func main() {
	root := "."
	if len(os.Args) > 1 {
		root = os.Args[1]
	}
	if err := run(root); err != nil {
		fmt.Fprintln(os.Stderr, "sizes:", err)
		os.Exit(1)
	}
}

func run(root string) error {
	rooms := map[string]*lines{}
	err := filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			if p != root && (e.Name() == "testdata" || strings.HasPrefix(e.Name(), ".")) {
				return fs.SkipDir
			}
			return nil
		}
		ext := filepath.Ext(p)
		if ext != ".go" && ext != ".s" {
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		name := room(filepath.ToSlash(rel))
		if rooms[name] == nil {
			rooms[name] = &lines{}
		}
		rooms[name].add(p, text)
		return nil
	})
	if err != nil {
		return err
	}
	var names []string
	for n := range rooms {
		names = append(names, n)
	}
	slices.Sort(names)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "lines\ttests\tgenerated\t  room\t")
	var sum lines
	for _, n := range names {
		r := rooms[n]
		fmt.Fprintf(w, "%d\t%d\t%d\t  %s\t\n", r.code, r.tests, r.generated, n)
		sum = lines{sum.code + r.code, sum.tests + r.tests, sum.generated + r.generated}
	}
	fmt.Fprintf(w, "%d\t%d\t%d\t  all\t\n", sum.code, sum.tests, sum.generated)
	return w.Flush()
}

// add counts the lines of a file that are not blank.
func (l *lines) add(path string, text []byte) {
	n := 0
	for line := range bytes.Lines(text) {
		if len(bytes.TrimSpace(line)) > 0 {
			n++
		}
	}
	head := text[:min(len(text), 400)]
	switch {
	case strings.HasSuffix(path, "_test.go"):
		l.tests += n
	case bytes.Contains(head, []byte("Code generated")) && bytes.Contains(head, []byte("DO NOT EDIT")):
		l.generated += n
	default:
		l.code += n
	}
}

// room is the room that a file belongs to.
func room(rel string) string {
	dir, _ := filepath.Split(rel)
	parts := strings.Split(strings.TrimSuffix(filepath.ToSlash(dir), "/"), "/")
	switch {
	case parts[0] == "":
		return "samebit (root)"
	case len(parts) > 1 && slices.Contains([]string{"backend", "internal", "cmd", "examples"}, parts[0]):
		return parts[0] + "/" + parts[1]
	}
	return parts[0]
}

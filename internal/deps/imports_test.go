package deps

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// room is a package or a folder of packages and what it may import of this
// module and of others. A trailing /... stands for everything below as well.
type room struct {
	name string
	own  []string // of this module; packages below a room may import each other
	ext  []string // modules, besides the standard library
	why  string   // what would be lost
}

// rooms is the map of docs/architecture.md 2. The longest name that fits a
// package is its room.
var rooms = []room{
	{"tensor", nil, nil,
		"views know nothing but bytes, so that every device and file reader can use them"},
	{"internal/canon", nil, nil,
		"the scalar meaning must be readable and portable by itself"},
	{"internal/canon/canontest", []string{"internal/canon"}, nil,
		"it reads golden numbers and judges nothing"},
	{"internal/blockq", []string{"tensor"}, nil,
		"weight formats are defined by bytes and exact products alone"},
	{"internal/crc32c", nil, []string{"golang.org/x/sys"},
		"a checksum knows nothing but bytes"},
	{"internal/archive", []string{"internal/canon"}, nil,
		"the meaning of archive attention in both float types knows neither tensors nor devices"},
	{"internal/interval", nil, []string{"gonum.org/v1/gonum"},
		"statistics of whatever is judged"},
	{"internal/jsonlines", nil, nil,
		"evaluations keep their results in one form"},
	{"internal/testenv", nil, nil,
		"tests of every room use it"},
	{"internal/wholefile", nil, nil,
		"saving a file does not depend on what is in it"},
	{"internal/wholefile/wholetest", []string{"internal/wholefile"}, nil,
		"one set of deaths for whoever saves files"},
	{"backend", []string{"tensor", "internal/canon"}, nil,
		"the contract must not know an implementation"},
	{"backend/ref", []string{"backend", "tensor", "internal/archive", "internal/canon", "internal/blockq"}, nil,
		"the reference is judged by reading it; it shares nothing with what it judges"},
	{"backend/cpu/...", []string{"backend", "tensor", "internal/canon", "internal/blockq"}, []string{"golang.org/x/sys"},
		"devices never import each other, or a fault would agree with itself"},
	{"backend/backendtest", []string{"backend", "backend/ref", "tensor", "tensor/tensortest", "internal/..."}, []string{"github.com/google/go-cmp"},
		"one suite for every device, which knows none but the reference"},
	{"backend/lockstep", []string{"backend", "tensor"}, nil,
		"it runs any two devices side by side"},
	{"tensor/tensortest", []string{"tensor"}, []string{"github.com/google/go-cmp"},
		"tests of every room use it"},
	{"checkpoint", []string{"tensor"}, []string{"golang.org/x/sys"},
		"files are read without knowing any model"},
	{"state", []string{"backend", "tensor"}, nil,
		"memory does not know which model fills it"},
	{"state/statetest", []string{"state", "backend", "backend/ref", "tensor"}, nil,
		"one suite for every kind of state"},
	{"nn", []string{"backend", "checkpoint", "state", "tensor"}, nil,
		"blocks know no family, no file and no device"},
	{"qwen3", []string{"backend", "checkpoint", "internal/canon", "internal/crc32c", "nn", "state", "tensor"}, nil,
		"a family is a config, names and a list of blocks"},
	{"token", nil, []string{"golang.org/x/text"},
		"text is turned into ids without any model"},
	{"token/jinja", nil, nil,
		"templates of strangers must reach nothing"},
	{"cache", []string{"backend", "checkpoint", "internal/wholefile", "state", "tensor"}, []string{"golang.org/x/sys"},
		"which snapshots to keep does not depend on blocks or text"},
	{"cache/agenttrace", []string{"backend", "cache", "state", "tensor"}, nil,
		"traces run without a model"},
	{"cache/cachetest", []string{"backend", "backend/ref", "cache", "state", "tensor"}, nil,
		"one suite for every store"},
	{"grad", []string{"backend", "internal/canon", "tensor"}, nil,
		"a tape wraps a stream and sees no model"},
	{"grad/lm", []string{"backend", "grad", "nn", "state", "tensor"}, nil,
		"it trains any decoder, of whatever family and data"},
	{"grad/journal", []string{"backend", "checkpoint", "grad", "internal/wholefile", "tensor"}, nil,
		"what is trained, and by which loss, does not matter to the files it is kept in"},
	{"backend/cuda/...", []string{"backend", "tensor", "internal/canon", "internal/blockq", "internal/archive"}, []string{"github.com/ebitengine/purego", "golang.org/x/sys"},
		"devices never import each other; a driver is loaded, never linked"},
	{"backend/opencl/...", []string{"backend", "tensor", "internal/canon", "internal/blockq", "internal/archive"}, []string{"github.com/ebitengine/purego", "golang.org/x/sys"},
		"devices never import each other; a driver is loaded, never linked"},
	{"rclc", []string{"backend", "checkpoint", "internal/canon", "internal/wholefile", "nn", "state", "tensor", "token", "token/jinja"}, nil,
		"rows are chosen and moved without knowing any family of models"},
	{"rclc/align", []string{"tensor"}, []string{"gonum.org/v1/gonum"},
		"a leaf: programs that do not want gonum do not get it"},
	{"rclc/eval", []string{"backend", "internal/interval", "internal/jsonlines", "nn", "rclc", "sample", "state", "tensor", "token", "token/jinja"}, nil,
		"a leaf: judging selectors needs statistics, using them does not"},
	{"qcc", []string{"backend", "checkpoint", "grad", "internal/canon", "nn", "state", "tensor"}, nil,
		"constant memory is a mixer and a state, and a layer takes itself back on a tape; calibrating is a room below"},
	{"qcc/calib", []string{"backend", "checkpoint", "grad", "grad/journal", "grad/lm", "internal/canon", "internal/wholefile", "nn", "qcc", "state", "tensor"}, nil,
		"training an adapter needs the tape, using one does not"},
	{"qcc/eval", []string{"backend", "internal/interval", "internal/jsonlines", "nn", "qcc", "qcc/calib", "state", "tensor", "token", "train/tasks"}, nil,
		"judging memories needs tasks and statistics, using them does not"},
	{"qcc/gate", nil, nil,
		"evidence is judged without whatever made it"},
	{"qcc/lm", []string{"backend", "checkpoint", "grad", "internal/canon", "nn", "qcc", "state", "tensor"}, nil,
		"the small model of experiments and traces"},
	{"train", []string{"backend", "checkpoint", "grad", "grad/journal", "grad/lm", "internal/blockq", "internal/canon", "internal/wholefile", "nn", "qwen3", "state", "tensor", "token", "train/tasks"}, nil,
		"a training is data, a model and a loop; commands draw its curves"},
	{"train/tasks", nil, nil,
		"text is generated without any model"},
	{"sample", []string{"internal/canon"}, nil,
		"drawing an id needs logits and nothing else"},
	{".", []string{"backend", "backend/cpu", "cache", "checkpoint", "nn", "qcc", "qwen3", "sample", "state", "tensor", "token", "token/jinja"}, nil,
		"the façade links the processor only: a driver is the user's choice"},
	{"parity", []string{"backend", "backend/cpu", "nn", "sample", "state", "tensor"}, nil,
		"it walks the rooms below the façade"},
	{"bench", []string{"backend", "cache", "backend/cpu", "internal/blockq", "internal/jsonlines", "internal/wholefile", "nn", "rclc", "state", "tensor"}, []string{"golang.org/x/sys"},
		"measurements take any device and any decoder"},
	{"bench/qccbench", []string{"backend", "bench", "grad", "internal/canon", "internal/jsonlines", "nn", "qcc", "qcc/lm", "state", "tensor"}, nil,
		"bounded and exact attention side by side"},
	{"gonumblas", []string{"backend", "backend/cpu", "internal/canon", "tensor"}, []string{"gonum.org/v1/gonum"},
		"a leaf: programs that do not want gonum do not get it"},
	{"examples/...", []string{".", "backend", "backend/cpu", "gonumblas", "nn", "sample", "state", "tensor", "token"}, []string{"gonum.org/v1/gonum"},
		"examples show what users can import"},
	{"internal/deps", nil, nil, "it reads sources, no packages"},
	{"internal/sizes", nil, nil, "it counts lines"},
	// Modules of their own: what they need must not become a need of the core.
	{"models", nil, nil,
		"files are carried by those who ask for them, and need nothing"},
	{"cmd/...", []string{".", "backend", "backend/cpu", "backend/ref", "bench", "bench/qccbench", "backend/lockstep", "backend/cuda", "backend/cuda/driver", "backend/cuda/emu", "backend/opencl", "cache", "checkpoint", "grad", "grad/lm", "internal/blockq", "internal/testenv", "internal/wholefile", "models", "natsbus", "nn", "parity", "qcc", "qcc/calib", "qcc/eval", "qcc/gate", "qwen3", "rclc", "rclc/align", "rclc/eval", "sample", "state", "tensor", "token", "token/jinja", "train", "train/tasks"},
		[]string{"gonum.org/v1/plot", "github.com/schollz/progressbar/v3", "github.com/spf13/cobra", "github.com/spf13/pflag", "golang.org/x/sys", "golang.org/x/term"},
		"commands choose devices and print; they have no logic that a library user would miss"},
	{"interop/...", []string{".", "backend", "backend/cpu", "backend/ref", "checkpoint", "grad", "nn", "state", "tensor", "tensor/tensortest"},
		[]string{"gorgonia.org", "go4.org/unsafe/assume-no-moving-gc", "gonum.org/v1/gonum"},
		"conversions and oracles whose dependencies nobody else should inherit"},
	{"interop/cudriver", []string{"backend", "backend/cuda/driver", "backend/cuda/driver/drivertest"},
		[]string{"C", "gorgonia.org/cu", "github.com/ebitengine/purego"},
		"a second driver, built with a tag, for programs that are linked with libcuda"},
	{"natsbus/...", []string{"backend", "cache", "cache/cachetest", "internal/wholefile", "rclc", "state", "tensor"},
		[]string{"github.com/nats-io"},
		"a store of the cache among others; the core does not know NATS"},
	{"internal/gen/...", nil, []string{"github.com/mmcloughlin/avo"},
		"generators write files that are committed; nobody needs avo to build"},
}

// forTests is what tests may import besides: they are allowed to see two devices
// at once, and the modules that serve as oracles.
var forTests = struct{ own, ext []string }{
	own: []string{"backend", "backend/cpu", "backend/cuda", "backend/cuda/emu", "backend/opencl", "backend/ref", "backend/backendtest", "backend/lockstep", "checkpoint", "grad", "grad/lm", "internal/...", "nn", "qcc", "qcc/lm", "qwen3", "state", "state/statetest", "tensor", "tensor/tensortest", "token", "token/jinja", "train"},
	ext: []string{"github.com/google/go-cmp", "golang.org/x/sys", "golang.org/x/text", "gonum.org/v1/gonum", "pgregory.net/rapid", "github.com/rogpeppe/go-internal"},
}

// covers reports whether pattern names pkg.
func covers(pattern, pkg string) bool {
	if base, ok := strings.CutSuffix(pattern, "/..."); ok {
		return pkg == base || strings.HasPrefix(pkg, base+"/")
	}
	return pkg == pattern
}

// roomOf finds the room of a package, the most specific one.
func roomOf(pkg string) *room {
	var best *room
	for i := range rooms {
		if covers(rooms[i].name, pkg) && (best == nil || len(rooms[i].name) > len(best.name)) {
			best = &rooms[i]
		}
	}
	return best
}

// local turns an import path into a package of the tree.
func local(path string) (pkg string, ok bool) {
	if path == module {
		return ".", true
	}
	return strings.CutPrefix(path, module+"/")
}

// judge says what is wrong with an import, or nothing.
func judge(pkg, path string, test bool) string {
	r := roomOf(pkg)
	if r == nil {
		return "package " + pkg + " has no room: add it to the table and to docs/architecture.md"
	}
	own, ext := r.own, r.ext
	if test {
		// What lies below a package may be its suite and its data.
		own, ext = slices.Concat(own, forTests.own, []string{pkg + "/..."}), slices.Concat(ext, forTests.ext)
	}
	if to, ok := local(path); ok {
		inside := strings.HasSuffix(r.name, "/...") && covers(r.name, to)
		if inside || slices.ContainsFunc(own, func(p string) bool { return covers(p, to) }) {
			return ""
		}
		return pkg + " may not import " + path + ": " + r.why
	}
	first, _, _ := strings.Cut(path, "/")
	if path == "C" && !slices.Contains(ext, path) {
		return pkg + " may not import C: programs build without a C compiler"
	}
	if !strings.Contains(first, ".") {
		return ""
	}
	if slices.ContainsFunc(ext, func(m string) bool { return path == m || strings.HasPrefix(path, m+"/") }) {
		return ""
	}
	return pkg + " may not import " + path + ": " + r.why
}

func TestImports(t *testing.T) {
	homeless := map[string]bool{}
	for _, f := range files(t) {
		if roomOf(f.dir) == nil {
			if !homeless[f.dir] {
				t.Error(judge(f.dir, "", f.test))
			}
			homeless[f.dir] = true
			continue
		}
		for _, i := range f.ast.Imports {
			path, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if s := judge(f.dir, path, f.test); s != "" {
				t.Errorf("%s: %s", fset.Position(i.Pos()), s)
			}
		}
	}
}

// The judge must notice the edges that matter most.
func TestImportsAreJudged(t *testing.T) {
	for _, c := range []struct {
		pkg, path string
		test, ok  bool
	}{
		{"backend/ref", "samebit/backend/cpu", false, false},
		{"backend/cpu", "samebit/backend/ref", false, false},
		{"backend/cpu", "samebit/backend/ref", true, true},
		{"backend/cpu", "samebit/backend/cpu/internal/pool", false, true},
		{"backend/cpu/internal/vec", "samebit/internal/canon", false, true},
		{"nn", "samebit/qwen3", false, false},
		{"nn", "os", false, true},
		{"tensor", "samebit/backend", false, false},
		{".", "samebit/cmd/samebit", false, false},
		{".", "gonum.org/v1/gonum/blas", false, false},
		{".", "golang.org/x/sys/cpu", false, false},
		{"checkpoint", "golang.org/x/sys/unix", false, true},
		{"token", "C", false, false},
		{"interop", "C", false, false},
		{"interop/cudriver", "C", false, true},
		{"brandnew", "fmt", false, false},
	} {
		if s := judge(c.pkg, c.path, c.test); (s == "") != c.ok {
			t.Errorf("%s importing %s (test %v): %q, want allowed %v", c.pkg, c.path, c.test, s, c.ok)
		}
	}
}

// A program that imports the façade links the standard library, x/sys and x/text.
func TestFacadeIsLight(t *testing.T) {
	edges := map[string]map[string]bool{}
	for _, f := range files(t) {
		if f.test {
			continue
		}
		if edges[f.dir] == nil {
			edges[f.dir] = map[string]bool{}
		}
		for _, i := range f.ast.Imports {
			path, _ := strconv.Unquote(i.Path.Value)
			edges[f.dir][path] = true
		}
	}
	seen := map[string]bool{}
	var visit func(pkg string, via []string)
	visit = func(pkg string, via []string) {
		if seen[pkg] {
			return
		}
		seen[pkg] = true
		via = append(via, pkg)
		for _, path := range slices.Sorted(maps.Keys(edges[pkg])) {
			if to, ok := local(path); ok {
				visit(to, slices.Clip(via))
				continue
			}
			first, _, _ := strings.Cut(path, "/")
			if strings.Contains(first, ".") && !strings.HasPrefix(path, "golang.org/x/sys/") && !strings.HasPrefix(path, "golang.org/x/text/") {
				t.Errorf("the root package links %s by way of %s", path, strings.Join(via, " → "))
			}
		}
	}
	visit(".", nil)
	for _, must := range []string{"backend/cpu", "qwen3", "tensor"} {
		if !seen[must] {
			t.Errorf("the root package does not reach %s: is this test looking at the tree?", must)
		}
	}
	for _, not := range []string{"backend/ref", "bench", "parity", "gonumblas"} {
		if seen[not] {
			t.Errorf("the root package links %s, which only tests and commands need", not)
		}
	}
}

package rclc

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"samebit/checkpoint"
	"samebit/internal/wholefile"
	"samebit/internal/wholefile/wholetest"
	"samebit/qwen3"
	"samebit/state"
)

// thinker is a sender with tokens, continuous rows, inherited rows and a tail.
func (g *rig) thinker(seed uint64, n int) *Sender {
	g.t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	rows := make([]state.Row, n)
	for i := range rows {
		rows[i].Token = rng.Int32N(int32(g.Info.Vocab))
		if i >= n-3 || rng.IntN(4) == 0 {
			rows[i] = state.Row{Token: -1, Vec: make([]float32, g.Info.Hidden)}
			for j := range rows[i].Vec {
				rows[i].Vec[j] = float32(rng.NormFloat64()) / 16
			}
		}
	}
	s, err := FromRows(bg, g.Model, rows)
	g.must(err)
	s.Latent, s.Inherited = 3, n/4
	g.t.Cleanup(s.Release)
	return s
}

func (g *rig) sameSender(what string, got, want *Sender) {
	g.t.Helper()
	if got.Latent != want.Latent || got.Inherited != want.Inherited || !slices.Equal(got.IDs(), want.IDs()) {
		g.t.Errorf("%s: %d latent and %d inherited of %v, want %d and %d of %v", what, got.Latent, got.Inherited, got.IDs(), want.Latent, want.Inherited, want.IDs())
	}
	for i := range want.Rows {
		if !sameBits(got.Rows[i].Vec, want.Rows[i].Vec) {
			g.t.Errorf("%s: row %d differs", what, i)
		}
	}
	g.same(what, g.next(got), g.next(want))
	g.same(what+": last hidden row", got.LastHidden, want.LastHidden)
}

// What is loaded continues with the bits of what was saved, in an agent with limits
// of its own.
func TestSnapshotContinues(t *testing.T) {
	bothModels(t, func(t *testing.T, g *rig) {
		path := filepath.Join(t.TempDir(), "notes.rclc")
		want := g.thinker(1, 41)
		a := g.bind(AgentConfig{Sender: want})
		if n := g.forwards(func() { g.must(a.Save(bg, path)) }); n != 0 {
			t.Errorf("Save ran %d rows", n)
		}
		first, err := os.ReadFile(path)
		g.must(err)
		g.must(a.Save(bg, path))
		if again, _ := os.ReadFile(path); !bytes.Equal(first, again) {
			t.Error("the same state gives other bytes")
		}
		b := g.bind(AgentConfig{IDs: []int32{1}, MaxNewTokens: 3, ContextLimit: 50})
		if n := g.forwards(func() { g.must(b.Load(bg, path, LoadConfig{})) }); n != 41 {
			t.Errorf("Load ran %d rows, want 41", n)
		}
		g.sameSender("loaded", g.sender(b), want)
		in, err := b.Inputs(bg, 0)
		g.must(err)
		if in.Allowance != 3 || in.Inherited != want.Inherited {
			t.Errorf("loaded inputs: %+v", in)
		}
		g.must(b.Discard(bg))

		// A history is saved like a state.
		h := g.bind(AgentConfig{IDs: []int32{4, 5, 6}})
		g.must(h.Save(bg, path))
		g.must(b.Load(bg, path, LoadConfig{}))
		if ids := g.sender(b).IDs(); !slices.Equal(ids, []int32{4, 5, 6}) {
			t.Errorf("loaded %v", ids)
		}

		// Without ids all rows are continuous.
		want.Rows = slices.Clone(want.Rows)
		for i, r := range want.Rows {
			if r.Token >= 0 {
				v, err := g.Row(r.Token)
				g.must(err)
				want.Rows[i] = state.Row{Token: -1, Vec: v}
			}
		}
		want.NoIDs = true
		g.must(want.Save(bg, path))
		s, err := LoadSender(bg, g.Model, path, LoadConfig{})
		g.must(err)
		defer s.Release()
		want.NoIDs = false
		g.sameSender("without ids", s, want)

		_, err = LoadSender(bg, g.Model, path, LoadConfig{Limit: 40})
		g.refused("beyond the limit", err, ErrSnapshot, "snapshot_length")
		g.must(b.Deliver(bg, g.delivery("Who?", Embeddings)))
		g.refused("Load with a queue", b.Load(bg, path, LoadConfig{}), ErrPending, "queued")

		// Nothing that could not be loaded is saved.
		other := *want
		other.Rows = slices.Clone(want.Rows)
		other.Rows[5].Vec = slices.Clone(other.Rows[5].Vec)
		other.Rows[5].Vec[2] = float32(math.Inf(1))
		g.refused("saving an infinity", (&other).Save(bg, path), ErrState, "nonfinite_rows")
		other.Rows[5] = state.Row{Token: 9, Vec: make([]float32, g.Info.Hidden)}
		g.refused("saving another row than the token's", (&other).Save(bg, path), ErrState, "ids_do_not_reproduce_rows")
		if names := wholetest.Names(t, filepath.Dir(path)); len(names) != 1 {
			t.Errorf("left %q", names)
		}
	})
}

// The same weights under another limit on the context are the same model: snapshots,
// messages and transfers go from one to the other.
func TestSnapshotOfAnotherLimit(t *testing.T) {
	for _, name := range agentModels {
		g := newRig(t, name)
		small := newRig(t, name, func(c *qwen3.Config) { c.Context = 64 })
		if small.Info.Context != 64 || g.Info.Context == 64 {
			t.Fatalf("limits of %d and %d", small.Info.Context, g.Info.Context)
		}
		s := g.thinker(1, 41)
		path := filepath.Join(t.TempDir(), "notes.rclc")
		g.must(s.Save(bg, path))
		got, err := LoadSender(bg, small.Model, path, LoadConfig{})
		g.must(err)
		defer got.Release()
		if rowsDigest(got) != rowsDigest(s) || got.Latent != s.Latent || got.Inherited != s.Inherited {
			t.Errorf("%s: loaded other rows or counts", name)
		}
		g.same("loaded", small.next(got), g.next(s))

		to := small.bind(AgentConfig{MaxNewTokens: 5})
		var d Delivery
		keep := ReceiverFunc(func(_ context.Context, got Delivery) error { d = got; return nil })
		g.must(Transfer(bg, []Source{s}, []Receiver{to, keep}, []Request{{IDs: []int32{5, 6, 7}}}, Config{Budget: 20, Record: true}))
		d, err = ReadDelivery(bytes.NewReader(wireBytes(t, d)), small.Model, Limits{})
		g.must(err)
		g.must(to.Deliver(bg, d))
		v, err := Verify(bg, got, d.Messages[0], nil)
		g.must(err)
		if !v.Equal() || !v.Scored {
			t.Errorf("%s: %+v", name, v)
		}

		long := g.thinker(2, 65)
		g.must(long.Save(bg, path))
		_, err = LoadSender(bg, small.Model, path, LoadConfig{})
		g.refused("beyond the smaller limit", err, ErrSnapshot, "snapshot_length")
	}
}

// A save dies at every write, sync, close, renaming and removal, with its process or
// with the machine: the file is the old one or the new one.
func TestSnapshotSurvivesDeath(t *testing.T) {
	g := newRig(t, "qwen3-bf16")
	was, want := g.thinker(1, 7), g.thinker(2, 9)
	const name = "notes.rclc"
	save := func(s *Sender) func(string) error {
		return func(dir string) error { return s.save(bg, wholetest.Unsynced{OS: wholefile.OS(dir)}, name) }
	}
	load := func(dir string) int {
		data, err := readSnapshot(filepath.Join(dir, name), g.Model, 100)
		if err != nil {
			return 0
		}
		s, err := parseSnapshot(bg, g.Model, name, data, 100, false)
		if err != nil {
			return 0
		}
		return s.Len()
	}
	wholetest.AtDeath(t, "notes.rclc", save(was), save(want),
		func(d wholefile.Folder) error { return want.save(bg, d, name) },
		func(dir string) (old, whole bool) { n := load(dir); return n == 7, n == 9 })
}

const childEnv = "SAMEBIT_RCLC_TEST_CHILD" // path of the snapshot that a child saves

// TestSnapshotChild is the other process of TestSnapshotSurvivesKill.
func TestSnapshotChild(t *testing.T) {
	path := os.Getenv(childEnv)
	if path == "" {
		t.Skip("only as a child")
	}
	g := newRig(t, "qwen3-bf16")
	s := [2]*Sender{g.thinker(1, 50), g.thinker(2, 60)}
	for i := 0; ; i++ {
		g.must(s[i%2].save(bg, wholetest.Unsynced{OS: wholefile.OS(filepath.Dir(path))}, filepath.Base(path)))
		if i == 0 {
			os.Stdout.WriteString("saved\n")
		}
	}
}

// A process that saves without end is killed: what it leaves can be loaded.
func TestSnapshotSurvivesKill(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Skip(err)
	}
	g := newRig(t, "qwen3-bf16")
	path := filepath.Join(t.TempDir(), "notes.rclc")
	for i := range 6 {
		c := exec.Command(exe, "-test.run=^TestSnapshotChild$")
		c.Env = append(os.Environ(), childEnv+"="+path)
		out, err := c.StdoutPipe()
		g.must(err)
		g.must(c.Start())
		if _, err := out.Read(make([]byte, 6)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(1+3*i) * time.Millisecond)
		c.Process.Kill()
		c.Wait()
		s, err := LoadSender(bg, g.Model, path, LoadConfig{})
		g.must(err)
		if n := s.Len(); n != 50 && n != 60 {
			t.Errorf("loaded %d rows", n)
		}
		s.Release()
	}
	g.must(g.thinker(3, 9).Save(bg, path))
	if n := wholetest.Names(t, filepath.Dir(path)); len(n) != 1 {
		t.Errorf("after the next save there are %q", n)
	}
}

// parts are what a snapshot file is made of.
type parts struct {
	entries []checkpoint.Entry
	key     string
	meta    map[string]any
}

func (g *rig) parts(s *Sender) *parts {
	g.t.Helper()
	rows, ids, err := s.matrix(bg)
	g.must(err)
	return &parts{
		entries: []checkpoint.Entry{
			{Name: "rows", Type: checkpoint.F32, Shape: []int{s.Len(), g.Info.Hidden}, Data: rows},
			{Name: "ids", Type: checkpoint.I64, Shape: []int{s.Len()}, Data: ids},
		},
		key: "rclc",
		meta: map[string]any{"format": 1, "writer": "samebit", "identity": g.Info.ID.String(), "tokens": hex.EncodeToString(g.Info.Tokens[:]), "content": content(rows, ids),
			"latent_steps": s.Latent, "inherited_positions": s.Inherited},
	}
}

// sum makes the digest of the content right again.
func (p *parts) sum() {
	var ids []byte
	if len(p.entries) > 1 {
		ids = p.entries[1].Data
	}
	p.meta["content"] = content(p.entries[0].Data, ids)
}

func (p *parts) bytes(t testing.TB) []byte {
	t.Helper()
	text, err := json.Marshal(p.meta)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := checkpoint.Write(&b, p.entries, map[string]string{p.key: string(text)}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func halves(data []byte) []byte {
	var out []byte
	for i := 2; i < len(data); i += 4 {
		out = append(out, data[i], data[i+1])
	}
	return out
}

// foreign makes a file of the reference of it.
func (p *parts) foreign() {
	p.key, p.meta = "rcc", map[string]any{"format": 1, "identity": "unknown", "latent_steps": p.meta["latent_steps"], "inherited_positions": p.meta["inherited_positions"]}
}

// Whatever is wrong with a file is found before anything runs, and the agent stays
// as it was.
func TestSnapshotRefused(t *testing.T) {
	g := newRig(t, "qwen3-bf16")
	s := g.thinker(1, 17)
	token := slices.IndexFunc(s.Rows, func(r state.Row) bool { return r.Token >= 0 })
	loose := slices.IndexFunc(s.Rows, func(r state.Row) bool { return r.Token < 0 })
	h := g.Info.Hidden
	put := func(p *parts, row int, bits uint32) {
		binary.LittleEndian.PutUint32(p.entries[0].Data[4*(row*h+3):], bits)
	}
	putID := func(p *parts, row int, id int64) {
		binary.LittleEndian.PutUint64(p.entries[1].Data[8*row:], uint64(id))
	}
	cases := []struct {
		what, code string
		trust      bool
		edit       func(p *parts)
	}{
		{"as saved", "", false, func(p *parts) {}},
		{"NaN", "finite", false, func(p *parts) { put(p, loose, 0x7fc00000); p.sum() }},
		{"infinity", "finite", false, func(p *parts) { put(p, token, 0xff800000); p.sum() }},
		{"an edited value", "content", false, func(p *parts) { put(p, loose, 0x3f000001) }},
		{"an edited id", "content", false, func(p *parts) { putID(p, token, 3) }},
		{"weights edited since", "rows", false, func(p *parts) { put(p, token, 0x3f000001); p.sum() }},
		{"another token", "rows", false, func(p *parts) { putID(p, token, int64(s.Rows[token].Token+1)%512); p.sum() }},
		{"an id beyond the vocabulary", "ids", false, func(p *parts) { putID(p, token, int64(g.Info.Vocab)); p.sum() }},
		{"an id that fits 32 bits when cut", "ids", false, func(p *parts) { putID(p, token, 1<<32|5); p.sum() }},
		{"an id of -2", "ids", false, func(p *parts) { putID(p, token, -2); p.sum() }},
		{"an id in the tail", "ids", false, func(p *parts) { putID(p, 16, 5); p.sum() }},
		{"16-bit rows", "dtype", false, func(p *parts) {
			p.entries[0].Type, p.entries[0].Data = checkpoint.BF16, halves(p.entries[0].Data)
			p.sum()
		}},
		{"integer rows", "dtype", false, func(p *parts) { p.entries[0].Type = checkpoint.I32; p.sum() }},
		{"a width of more", "width", false, func(p *parts) {
			p.entries = p.entries[:1]
			p.entries[0].Shape = []int{17, h + 1}
			p.entries[0].Data = append(p.entries[0].Data, make([]byte, 4*17)...)
			p.sum()
		}},
		{"flat rows", "width", false, func(p *parts) { p.entries[0].Shape = []int{17 * h} }},
		{"no rows", "length", false, func(p *parts) {
			p.entries[0].Shape, p.entries[0].Data = []int{0, h}, nil
			p.entries[1].Shape, p.entries[1].Data = []int{0}, nil
			p.sum()
		}},
		{"more rows than the limit", "length", false, func(p *parts) {
			p.entries = p.entries[:1]
			p.entries[0].Shape[0] = 101
			p.entries[0].Data = make([]byte, 4*101*h)
			p.sum()
		}},
		{"ids of another length", "ids", false, func(p *parts) { p.entries[1].Shape[0]--; p.entries[1].Data = p.entries[1].Data[8:]; p.sum() }},
		{"ids of another type", "ids", false, func(p *parts) {
			p.entries[1].Type = checkpoint.F64
			p.sum()
		}},
		{"no rows tensor", "format", false, func(p *parts) { p.entries[0].Name = "row" }},
		{"another tensor", "format", false, func(p *parts) {
			p.entries = append(p.entries, checkpoint.Entry{Name: "kv", Type: checkpoint.F32, Shape: []int{0}})
		}},
		{"format 2", "format", false, func(p *parts) { p.meta["format"] = 2 }},
		{"format 1.5", "format", false, func(p *parts) { p.meta["format"] = 1.5 }},
		{"a format in letters", "format", false, func(p *parts) { p.meta["format"] = "1" }},
		{"a field more", "format", false, func(p *parts) { p.meta["queue"] = 1 }},
		{"a field in capitals", "format", false, func(p *parts) { p.meta["Format"] = 1; delete(p.meta, "format") }},
		{"a field less", "format", false, func(p *parts) { delete(p.meta, "inherited_positions") }},
		{"a field of null", "format", false, func(p *parts) { p.meta["latent_steps"] = nil }},
		{"no writer", "format", false, func(p *parts) { p.meta["writer"] = "" }},
		{"no metadata of ours", "format", false, func(p *parts) { p.key = "samebit" }},
		{"a tail of all", "counts", false, func(p *parts) { p.meta["latent_steps"] = 17 }},
		{"a negative tail", "counts", false, func(p *parts) { p.meta["latent_steps"] = -1 }},
		{"inherited beyond the tail", "counts", false, func(p *parts) { p.meta["inherited_positions"] = 15 }},
		{"a huge tail", "format", false, func(p *parts) { p.meta["latent_steps"] = json.Number("9223372036854775808") }},
		{"another model", "identity", false, func(p *parts) { p.meta["identity"] = state.ID{1}.String() }},
		{"another vocabulary", "identity", false, func(p *parts) { p.meta["tokens"] = strings.Repeat("0", 64) }},
		{"no vocabulary", "", false, func(p *parts) { p.meta["tokens"] = "" }},
		{"the reference's", "format", false, func(p *parts) { p.foreign() }},
		{"the reference's, trusted", "", true, func(p *parts) { p.foreign() }},
		{"the reference's, without ids", "", true, func(p *parts) { p.foreign(); p.entries = p.entries[:1] }},
		{"the reference's, of other weights", "rows", true, func(p *parts) { p.foreign(); put(p, token, 0x3f000001) }},
		{"the reference's, with a writer", "format", true, func(p *parts) { p.foreign(); p.meta["writer"] = "x" }},
		{"the reference's, of integers", "dtype", true, func(p *parts) { p.foreign(); p.entries[0].Type = checkpoint.I32 }},
	}
	a := g.bind(AgentConfig{IDs: []int32{1, 2, 3}, ContextLimit: 100})
	path := filepath.Join(t.TempDir(), "notes.rclc")
	for _, c := range cases {
		p := g.parts(s)
		c.edit(p)
		g.must(os.WriteFile(path, p.bytes(t), 0o600))
		var err error
		n := g.forwards(func() { err = a.Load(bg, path, LoadConfig{TrustIdentity: c.trust}) })
		if c.code == "" {
			g.must(err)
			if n != 17 {
				t.Errorf("%s: %d rows ran", c.what, n)
			}
			g.must(a.Record(bg, []int32{1, 2, 3}, nil))
			continue
		}
		g.refused(c.what, err, ErrSnapshot, "snapshot_"+c.code)
		if n != 0 {
			t.Errorf("%s: %d rows ran", c.what, n)
		}
		if ids := g.sender(a).IDs(); !slices.Equal(ids, []int32{1, 2, 3}) {
			t.Fatalf("%s: the agent has %v", c.what, ids)
		}
	}

	// 16-bit rows of the reference are the same numbers.
	p := g.parts(s)
	p.foreign()
	wide := slices.Clone(p.entries[0].Data)
	for i := range wide {
		if i%4 < 2 && s.Rows[i/4/h].Token < 0 {
			wide[i] = 0
		}
	}
	p.entries[0].Type, p.entries[0].Data = checkpoint.BF16, halves(wide)
	g.must(os.WriteFile(path, p.bytes(t), 0o600))
	g.must(a.Load(bg, path, LoadConfig{TrustIdentity: true}))
	g.must(a.Record(bg, []int32{1, 2, 3}, nil))

	// A file that ends early, anything else, and nothing.
	whole := g.parts(s).bytes(t)
	for n := 0; n < len(whole); n += 1 + len(whole)/97 {
		g.must(os.WriteFile(path, whole[:n], 0o600))
		g.refused(fmt.Sprintf("%d of %d bytes", n, len(whole)), a.Load(bg, path, LoadConfig{}), ErrSnapshot, "snapshot_format")
	}
	gguf, err := os.ReadFile("../testdata/models/gguf/qwen3-bf16.gguf")
	g.must(err)
	_, err = parseSnapshot(bg, g.Model, "model", gguf, 100, true)
	g.refused("a model", err, ErrSnapshot, "snapshot_format")
	g.refused("a folder", a.Load(bg, t.TempDir(), LoadConfig{}), ErrSnapshot, "snapshot_format")
	g.must(os.WriteFile(path, nil, 0o600))
	g.must(os.Truncate(path, 1<<40))
	g.refused("a file of a terabyte", a.Load(bg, path, LoadConfig{}), ErrSnapshot, "snapshot_length")
	if err := a.Load(bg, path+".missing", LoadConfig{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	_, err = LoadSender(bg, g.Model, path, LoadConfig{Limit: -1})
	g.refused("a negative limit", err, ErrOption, "bad_limit")

	// Cancellation keeps the state.
	g.must(os.WriteFile(path, whole, 0o600))
	ctx, cancel := context.WithCancel(bg)
	g.chunk, g.before = 4, func() { cancel() }
	if err := a.Load(ctx, path, LoadConfig{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	g.before = nil
	if ids := g.sender(a).IDs(); !slices.Equal(ids, []int32{1, 2, 3}) {
		t.Errorf("a cancelled Load left %v", ids)
	}
}

// A header may claim what it wants: nothing is allocated for it.
func TestSnapshotHostileLengths(t *testing.T) {
	g := newRig(t, "qwen3-bf16")
	for _, header := range []string{
		`{"rows":{"dtype":"F32","shape":[1099511627776,64],"data_offsets":[0,281474976710656]}}`,
		`{"rows":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}}`,
		`{"rows":{"dtype":"F32","shape":[0,9223372036854775807],"data_offsets":[0,0]}}`,
		`{"__metadata__":{"rclc":"{\"format\":1}"},"rows":{"dtype":"F32","shape":[1,64],"data_offsets":[0,256]}}`,
	} {
		data := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := parseSnapshot(bg, g.Model, "hostile", data, 100, true)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; err == nil || n > 64<<10 {
			t.Errorf("%s: %v, %d bytes allocated", header, err, n)
		}
	}
}

func FuzzSnapshot(f *testing.F) {
	g := newRig(f, "qwen3-bf16")
	whole := g.parts(g.thinker(1, 5))
	f.Add(whole.bytes(f), false)
	whole.foreign()
	f.Add(whole.bytes(f), true)
	whole.entries = whole.entries[:1]
	f.Add(whole.bytes(f), true)
	f.Fuzz(func(t *testing.T, data []byte, trust bool) {
		s, err := parseSnapshot(bg, g.Model, "fuzzed", data, 100, trust)
		if err != nil {
			if !errors.Is(err, ErrSnapshot) || !strings.HasPrefix(Code(err), "snapshot_") {
				t.Fatalf("an error without cause: %v", err)
			}
			return
		}
		if err := checkRows(g.Model, s.Rows); err != nil || s.Len() < 1 || s.Latent < 0 || s.Inherited < 0 || s.Latent+s.Inherited > s.Len() {
			t.Fatalf("accepted %d rows, %d latent, %d inherited: %v", s.Len(), s.Latent, s.Inherited, err)
		}
		if _, _, err := s.matrix(bg); err != nil {
			t.Fatalf("accepted what could not be saved: %v", err)
		}
	})
}

package nn_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"samebit/backend/ref"
	"samebit/checkpoint"
	"samebit/nn"
	"samebit/state"
)

// TestLoadElsewhere loads on another device, in another process as it were, with
// another number of threads.
func TestLoadElsewhere(t *testing.T) {
	for _, model := range models {
		t.Run(model, func(t *testing.T) {
			g := newRig(t, model, 0)
			s := g.scripts(model)[0]
			q := newRigOn(t, ref.New(), model, 0)
			for _, n := range []int{0, 1, 63, 64, 65, 128} {
				r := g.runner(512)
				g.must(r.Append(bg, s.rows[:n]))
				file := g.saved(r)
				o := q.runner(512)
				q.must(o.Append(bg, s.rows[3:9])) // is replaced
				q.must(o.Load(bytes.NewReader(file)))
				if o.Len() != n || o.Logits() != nil {
					t.Errorf("loaded %d rows, want %d without logits", o.Len(), n)
				}
				if again := q.saved(o); !bytes.Equal(again, file) {
					t.Errorf("%d rows saved on cpu, loaded and saved on ref: other bytes", n)
				}
				q.must(o.AppendAll(bg, s.rows[n:n+3], func(i int, l []float32) { q.same("loaded on ref", l, s.logits[n+i]) }))
				r.Close()
				o.Close()
			}
		})
	}
}

func TestLoadForeign(t *testing.T) {
	a, b := newRig(t, "qwen3-tied-fp32", 0), newRig(t, "qwen3-tied-bf16", 0)
	ra, rb := a.runner(64), b.runner(64)
	a.must(ra.Append(bg, tokens(1, 2, 3)))
	b.must(rb.Append(bg, tokens(4, 5)))
	want := append([]float32(nil), rb.Logits()...)
	if err := rb.Load(bytes.NewReader(a.saved(ra))); !errors.Is(err, state.ErrForeign) {
		t.Errorf("loading another model's sequence: %v, want ErrForeign", err)
	}
	other := a.runner(64)
	snap, err := rb.Snapshot()
	b.must(err)
	defer snap.Release()
	if err := other.Resume(tokens(4, 5), snap); !errors.Is(err, state.ErrForeign) {
		t.Errorf("resuming another model's snapshot: %v, want ErrForeign", err)
	}
	var plain bytes.Buffer
	b.must(checkpoint.Write(&plain, nil, map[string]string{"format": "pt"}))
	for _, file := range []string{"", "hello", plain.String()} {
		if err := rb.Load(strings.NewReader(file)); err == nil {
			t.Errorf("loading %.10q: no error", file)
		}
	}
	if err := rb.Load(broken{}); !errors.Is(err, errBroken) {
		t.Errorf("loading from a broken reader: %v", err)
	}
	if err := rb.Save(broken{}); !errors.Is(err, errBroken) {
		t.Errorf("saving to a broken writer: %v", err)
	}
	b.same("after refusals", rb.Logits(), want)
}

var errBroken = errors.New("broken pipe")

type broken struct{}

func (broken) Read([]byte) (int, error)  { return 0, errBroken }
func (broken) Write([]byte) (int, error) { return 0, errBroken }

// TestDamagedFiles flips every byte of the header and cuts the file everywhere
// near a border. Load must refuse or give a sequence that is whole, and leave the
// runner as it was when it refuses.
func TestDamagedFiles(t *testing.T) {
	for _, model := range []string{models[0], models[3]} {
		t.Run(model, func(t *testing.T) {
			g := newRig(t, model, 0)
			s := g.scripts(model)[0]
			src := g.runner(64)
			g.must(src.Append(bg, s.rows[:67]))
			g.must(src.Append(bg, []state.Row{{Token: -1, Vec: make([]float32, g.dec.Hidden)}}))
			file := g.saved(src)
			header := 8 + int(binary.LittleEndian.Uint64(file))
			r := g.runner(64)
			g.must(r.Append(bg, s.rows[:9]))
			kept := 0
			try := func(what string, data []byte) {
				err := r.Load(bytes.NewReader(data))
				if r.Len() != r.State().Len() {
					t.Fatalf("%s: history of %d rows, state of %d (%v)", what, r.Len(), r.State().Len(), err)
				}
				if err == nil {
					kept++
					g.must(r.Reset())
					g.must(r.Append(bg, s.rows[:9]))
				} else if r.Len() != 9 {
					t.Fatalf("%s: a refused file changed 9 rows to %d (%v)", what, r.Len(), err)
				}
			}
			for i := range header {
				for _, x := range []byte{1, 0x80, 0x10} {
					bad := bytes.Clone(file)
					bad[i] ^= x
					try(fmt.Sprintf("byte %d ^ %#x", i, x), bad)
				}
			}
			for n := 0; n < len(file); n += 1 + n/40 {
				if err := r.Load(bytes.NewReader(file[:n])); err == nil {
					t.Fatalf("a file of %d bytes cut to %d was accepted", len(file), n)
				}
			}
			try("a longer file", append(bytes.Clone(file), 0))
			if kept > header/10 {
				t.Errorf("%d of %d damaged headers were accepted", kept, 3*header)
			}
			g.must(r.Append(bg, s.rows[9:40]))
			g.same("after all refusals", r.Logits(), s.logits[39])
		})
	}
}

// TestHostileSizes: what a header claims is not allocated.
func TestHostileSizes(t *testing.T) {
	g := newRig(t, models[0], 0)
	r := g.runner(64)
	g.must(r.Append(bg, tokens(1, 2, 3)))
	file := string(g.saved(r))
	hostile := func(old, new string) []byte {
		i := strings.Index(file, "}}") + 2
		h := strings.ReplaceAll(file[8:i], old, new)
		if h == file[8:i] {
			t.Fatalf("the header has no %s: %s", old, h)
		}
		return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(h))), h...), file[8+int(binary.LittleEndian.Uint64([]byte(file))):]...)
	}
	for _, data := range [][]byte{
		hostile(`"rows":"3"`, `"rows":"2000000000"`), hostile("[3]", "[1000000000]"), hostile("[3]", "[1000000000,1000000000,1000000000]"),
		append(binary.LittleEndian.AppendUint64(nil, 1<<62), file[8:]...), binary.LittleEndian.AppendUint64(nil, 99<<20),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := r.Load(bytes.NewReader(data))
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("%.200q was accepted", data)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
			t.Errorf("%.60q made Load allocate %d bytes", data, n)
		}
	}
	if r.Len() != 3 {
		t.Errorf("refused files changed 3 rows to %d", r.Len())
	}
}

func FuzzLoad(f *testing.F) {
	g := newRig(f, models[3], 0)
	src := g.runner(64)
	for _, rows := range [][]state.Row{nil, tokens(5), {{Token: -1, Vec: make([]float32, g.dec.Hidden)}}} {
		g.must(src.Append(bg, rows))
		f.Add(g.saved(src))
	}
	f.Add([]byte("\x02\x00\x00\x00\x00\x00\x00\x00{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := g.dec.NewRunner(g.stream, g.pool, nn.RunnerConfig{})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		err = r.Load(bytes.NewReader(data))
		if r.Len() != r.State().Len() || err != nil && r.Len() != 0 {
			t.Fatalf("history of %d rows, state of %d, error %v", r.Len(), r.State().Len(), err)
		}
		if err := r.Append(bg, tokens(1)); err != nil && r.Len() < 512 {
			t.Fatalf("a loaded sequence cannot go on: %v", err)
		}
	})
}

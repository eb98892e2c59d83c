package nn_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/checkpoint"
	"samebit/nn"
	"samebit/qwen3"
	"samebit/state"
	"samebit/tensor"
	"samebit/tensor/tensortest"
)

// bf16KV ends the names of models that keep keys and values in bf16.
const bf16KV = " kv=bf16"

// models are the checkpoints that the laws run on: dense, biased, sliding,
// hybrid with more value than key heads, hybrid with experts.
var models = []string{"qwen3-tied-fp32", "qwen2-bf16", "qwen3-swa-bias-fp32", "qwen35-8l-bf16", "qwen3next-moe-fp32", "qwen3-swa-bias-fp32" + bf16KV, "qwen35-8l-bf16" + bf16KV}

// rig is a model on a device with a pool and a stream.
type rig struct {
	testing.TB
	dev    backend.Device
	dec    *nn.Decoder
	pool   *state.Pool
	stream backend.Stream
}

func newRig(t testing.TB, model string, limit int64) *rig {
	t.Helper()
	dev, err := cpu.New(cpu.Config{Threads: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return newRigOn(t, dev, model, limit)
}

func newRigOn(t testing.TB, dev backend.Device, model string, limit int64) *rig {
	t.Helper()
	model, half := strings.CutSuffix(model, bf16KV)
	set, err := checkpoint.Open("../testdata/models/checkpoints/" + model)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	cfg, err := qwen3.FromSet(set)
	if err != nil {
		t.Fatal(err)
	}
	g := &rig{TB: t, dev: dev}
	if g.dec, err = qwen3.Load(context.Background(), dev, cfg, set, qwen3.LoadOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.dec.Close)
	if half {
		if g.dec, err = g.dec.WithKV(tensor.BF16); err != nil {
			t.Fatal(err)
		}
	}
	if g.pool, err = state.NewPool(dev, limit); err != nil {
		t.Fatal(err)
	}
	if g.stream, err = dev.NewStream(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		g.stream.Close()
		if err := g.pool.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

func (g *rig) must(err error) {
	g.Helper()
	if err != nil {
		g.Fatal(err)
	}
}

// runner is closed with the test.
func (g *rig) runner(chunk int) *nn.Runner {
	g.Helper()
	r, err := g.dec.NewRunner(g.stream, g.pool, nn.RunnerConfig{ChunkRows: chunk})
	g.must(err)
	g.Cleanup(r.Close)
	return r
}

func (g *rig) state() state.State {
	g.Helper()
	s, err := g.dec.NewState(g.pool)
	g.must(err)
	g.Cleanup(s.Release)
	return s
}

func (g *rig) ctx() *nn.Ctx {
	c := nn.NewCtx(g.stream, g.dev)
	g.Cleanup(c.Close)
	return c
}

// script is a text with what a straight run gives: logits and hidden rows.
type script struct {
	rows           []state.Row
	logits, hidden [][]float32
	shared         int // rows in common with script 0
}

const scriptRows = 150

// run is one pass per 512 rows, the straight path.
func (g *rig) run(rows []state.Row) *script {
	g.Helper()
	s := &script{rows: rows}
	st, err := g.dec.NewState(g.pool)
	g.must(err)
	defer st.Release()
	c := g.ctx()
	q := []nn.Seq{{State: st, In: rows, Want: nn.WantAll, NeedHidden: true}}
	g.must(g.dec.Forward(context.Background(), c, q))
	for i := range rows {
		s.logits = append(s.logits, q[0].Logits[i*g.dec.Vocab:(i+1)*g.dec.Vocab])
		s.hidden = append(s.hidden, q[0].Hidden[i*g.dec.Hidden:(i+1)*g.dec.Hidden])
	}
	return s
}

var scriptCache sync.Map // model -> []*script

// scripts are four texts; the later ones leave the first at other places.
func (g *rig) scripts(model string) []*script {
	g.Helper()
	if v, ok := scriptCache.Load(model); ok {
		return v.([]*script)
	}
	r := rand.New(rand.NewPCG(5, 7))
	var l []*script
	for _, shared := range []int{scriptRows, 20, 64, 101} {
		rows := make([]state.Row, scriptRows)
		for i := range rows {
			if rows[i].Token = int32(r.IntN(g.dec.Vocab)); i < shared && len(l) > 0 {
				rows[i] = l[0].rows[i]
			}
		}
		s := g.run(rows)
		s.shared = shared
		l = append(l, s)
	}
	scriptCache.Store(model, l)
	return l
}

// same compares the logits of one row.
func (g *rig) same(what string, got, want []float32) {
	g.Helper()
	if d := tensortest.DiffBits(want, got); d != "" {
		g.Fatalf("%s: logits differ from the straight run (-want +got):\n%s", what, d)
	}
}

// tokens wraps ids as rows.
func tokens(ids ...int32) []state.Row {
	l := make([]state.Row, len(ids))
	for i, id := range ids {
		l[i].Token = id
	}
	return l
}

// saved are the bytes of Save.
func (g *rig) saved(r *nn.Runner) []byte {
	g.Helper()
	var b bytes.Buffer
	g.must(r.Save(&b))
	return b.Bytes()
}

func seeds(t *testing.T, full, short int) int {
	if testing.Short() {
		return short
	}
	return full
}

// record prints a plan when it breaks a law.
type record []string

func (l *record) add(format string, args ...any) { *l = append(*l, fmt.Sprintf(format, args...)) }

func (l *record) show(t testing.TB) {
	if t.Failed() {
		t.Logf("the plan: %q", *l)
	}
}

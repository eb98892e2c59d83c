package rclc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/backend/cuda"
	"samebit/backend/cuda/emu"
	"samebit/backend/ref"
	"samebit/checkpoint"
	"samebit/nn"
	"samebit/qwen3"
	"samebit/state"
	"samebit/tensor"
	"samebit/token/jinja"
)

// bf16KV ends the names of models that keep keys and values in bf16.
const bf16KV = " kv=bf16"

// coreModels are dense, with sliding layers, and hybrids.
var coreModels = []string{"qwen3-tied-fp32", "qwen3-swa-bias-fp32", "qwen35-8l-bf16", "qwen3next-moe-fp32"}

// core loads a checkpoint of testdata on a device.
func core(t testing.TB, dev backend.Device, name string, mc ModelConfig) *Model {
	t.Helper()
	set, err := checkpoint.Open("../testdata/models/checkpoints/" + strings.TrimSuffix(name, bf16KV))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { set.Close() })
	cfg, err := qwen3.FromSet(set)
	if err != nil {
		t.Fatal(err)
	}
	mc.Checkpoint = name
	return loaded(t, dev, cfg, set, mc)
}

func processor(t testing.TB, threads int, impl string) backend.Device {
	t.Helper()
	d, err := cpu.New(cpu.Config{Threads: threads, Impl: impl})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// emulated is the emulated CUDA device, which finds races and stray accesses too.
func emulated(t testing.TB) backend.Device {
	t.Helper()
	d, err := cuda.New(cuda.Config{Driver: emu.New(emu.Config{}), Name: "cuda:emu"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// script draws ids.
func script(seed uint64, n, vocab int) []int32 {
	r := rand.New(rand.NewPCG(seed, 11))
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(r.IntN(vocab))
	}
	return ids
}

// mixedRows draws rows of which every fifth is continuous.
func mixedRows(seed uint64, n int, m *Model) []state.Row {
	r := rand.New(rand.NewPCG(seed, 12))
	rows := state.Tokens(script(seed, n, m.Info.Vocab))
	for i := 4; i < n; i += 5 {
		rows[i] = state.Row{Token: -1, Vec: make([]float32, m.Info.Hidden)}
		for k := range rows[i].Vec {
			rows[i].Vec[k] = float32(r.NormFloat64()) * 0.05
		}
	}
	return rows
}

// fromRows is a sender of rows, released with the test.
func fromRows(t testing.TB, m *Model, rows []state.Row) *Sender {
	t.Helper()
	s, err := FromRows(bg, m, rows)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Release)
	return s
}

// print is what must not change about a sender.
type print struct {
	rows, state Digest
	hidden      []float32
}

func fingerprint(t testing.TB, s *Sender) print {
	t.Helper()
	d, err := s.stateDigest()
	if err != nil {
		t.Fatal(err)
	}
	return print{rowsDigest(s), d, slices.Clone(s.LastHidden)}
}

func (p print) same(t testing.TB, s *Sender) {
	t.Helper()
	if q := fingerprint(t, s); q.rows != p.rows || q.state != p.state || !sameBits(q.hidden, p.hidden) {
		t.Error("the sender is not what it was")
	}
}

// inbox is a planning receiver with a limit.
type inbox struct {
	m       *Model
	limit   int
	history []jinja.Message
	got     []Delivery
	plans   []Plan
	fail    error
	planned int
}

func (b *inbox) Model() *Model                                 { return b.m }
func (b *inbox) Deliver(ctx context.Context, d Delivery) error { return errors.New("not planned") }
func (b *inbox) Plan(ctx context.Context, r Request, where Placement) (Plan, error) {
	b.planned++
	return b.m.NewPlan(b.history, r, where, 2, b.limit)
}
func (b *inbox) Enqueue(d Delivery, p Plan) error {
	if b.fail != nil {
		return b.fail
	}
	b.got, b.plans = append(b.got, d), append(b.plans, p)
	return nil
}

// TestScoresHaveOneMeaning: on every device and for every model, whatever the chunks,
// the scores have the same bits, and a capture leaves no trace in the sender.
func TestScoresHaveOneMeaning(t *testing.T) {
	const rows = 131
	for _, name := range append(coreModels, coreModels[0]+bf16KV) {
		t.Run(name, func(t *testing.T) {
			var want [][]float32
			devs := []backend.Device{ref.New(), processor(t, 1, ""), processor(t, 2, ""), processor(t, 8, "")}
			for _, impl := range cpu.Impls() {
				devs = append(devs, processor(t, 3, impl))
			}
			if testing.Short() {
				devs = devs[1:3]
			} else if !strings.HasSuffix(name, bf16KV) {
				devs = append(devs, emulated(t))
			}
			for d, dev := range devs {
				m := core(t, dev, name, ModelConfig{ChunkRows: []int{0, 7, 64, 100}[d%4]})
				s := fromRows(t, m, mixedRows(3, rows, m))
				before := fingerprint(t, s)
				for i, sel := range []Scorer{CacheBack{}, QSnap{}, ChunkKV{Window: 9}} {
					got, err := sel.Scores(bg, s, script(4, 5+i, m.Info.Vocab))
					if err != nil {
						t.Fatal(err)
					}
					if d == 0 {
						want = append(want, got)
					}
					if len(got) != rows || !sameBits(got, want[i]) {
						t.Errorf("device %d (%s): other scores of %v", d, dev.Info().Kernels, sel)
					}
				}
				before.same(t, s)
			}
		})
	}
}

// TestBlocksOfWeights: a long request on a long sender shows its weights in more than
// one block, which changes nothing: the scores are those of a sender on a device that
// takes one row at a time.
func TestBlocksOfWeights(t *testing.T) {
	if testing.Short() {
		t.Skip("a few seconds")
	}
	m := core(t, processor(t, 2, ""), "qwen3-tied-fp32", ModelConfig{})
	m.dec.Context, m.Info.Context = 1<<20, 1<<20 // random weights attend anywhere
	const long, request = 2500, 440              // 4 heads: a row of weights takes 47 kB, a block 356 rows
	ids := script(5, long+request, m.Info.Vocab)
	s := tokens(t, m, ids[:long])
	var firsts []int
	v := newVotes(long, request, m.Info.Heads, m.Info.KVHeads, true)
	take := v.layer
	v.layer = func(sum, square [][]float32) { take(sum, square); firsts = append(firsts, v.layers) }
	if err := s.capture(bg, long, state.Tokens(ids[long:]), &v.gauge); err != nil {
		t.Fatal(err)
	}
	got, err := v.scores()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(firsts, []int{1, 2, 3}) {
		t.Errorf("layers came as %v", firsts)
	}
	// One pass per row: the sums of a layer are kept apart and joined in order.
	n := m.fullLayers()
	w := newVotes(long, request, m.Info.Heads, m.Info.KVHeads, true)
	parts := make([]*gauge, n)
	for l := range parts {
		parts[l] = &gauge{t: long, rows: request, groups: m.Info.KVHeads, square: true, layer: w.add}
		if err := parts[l].open(m.pool.Device()); err != nil {
			t.Fatal(err)
		}
		defer parts[l].close(m.pool.Device())
	}
	r, stream, err := m.runner(bg, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	defer r.Close()
	if err := r.Resume(s.Rows, s.Snap); err != nil {
		t.Fatal(err)
	}
	r.Ctx().Weights = func(c *nn.Ctx, layer, _ int, x tensor.Tensor) {
		parts[layer].take(c.Stream, r.Len()-1-long, x)
	}
	if err := r.AppendHidden(bg, state.Tokens(ids[long:]), func(int, []float32) {}); err != nil {
		t.Fatal(err)
	}
	want, err := w.scores()
	if err != nil {
		t.Fatal(err)
	}
	if !sameBits(got, want) {
		t.Error("blocks of weights change the scores")
	}
}

// 2 senders × 2 receivers × 2 requests make 4 selector calls and 4 deliveries of 2
// messages, requests outside, receivers inside.
func TestFanInAndOut(t *testing.T) {
	m := core(t, processor(t, 2, ""), "qwen3-tied-fp32", ModelConfig{})
	a, b := tokens(t, m, script(1, 40, m.Info.Vocab)), tokens(t, m, script(2, 60, m.Info.Vocab))
	pa, pb := fingerprint(t, a), fingerprint(t, b)
	requests := []Request{{IDs: []int32{1, 2, 3}}, {IDs: []int32{9, 8}}}
	var calls []string
	pick := SelectorFunc(func(_ context.Context, s *Sender, request []int32, budget int) ([]int, error) {
		calls = append(calls, fmt.Sprintf("%d/%v/%d", s.Len(), request, budget))
		s.Rows[0].Token, request[0] = 5, 5 // its own copies
		return []int{s.Len() - 1, 0}, nil
	})
	var order []string
	var got []Delivery
	to := func(name string) Receiver {
		return ReceiverFunc(func(_ context.Context, d Delivery) error {
			order = append(order, name+fmt.Sprint(d.Request.IDs))
			got = append(got, d)
			return nil
		})
	}
	if err := Transfer(bg, []Source{a, b}, []Receiver{to("x"), to("y")}, requests, Config{Selector: pick}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"40/[1 2 3]/10", "60/[1 2 3]/15", "40/[9 8]/10", "60/[9 8]/15"}; !slices.Equal(calls, want) {
		t.Errorf("selector calls %v, want %v", calls, want)
	}
	if want := []string{"x[1 2 3]", "y[1 2 3]", "x[9 8]", "y[9 8]"}; !slices.Equal(order, want) {
		t.Errorf("deliveries %v, want %v", order, want)
	}
	for _, d := range got {
		if len(d.Messages) != 2 || d.Positions() != 4 || d.Bytes() != 4*4*m.Info.Hidden || d.Messages[0].Selection() != nil {
			t.Errorf("delivery of %d messages, %d positions, %d bytes", len(d.Messages), d.Positions(), d.Bytes())
		}
	}
	pa.same(t, a)
	pb.same(t, b)
}

// A receiver that goes on from what it assembled is where a run from nothing over the
// same rows is, with either form and placement, on dense and hybrid models.
func TestReceiverContinues(t *testing.T) {
	chat := func(messages []jinja.Message, _ bool, cut string) (before, after []int32, err error) {
		var text strings.Builder
		for _, m := range messages {
			text.WriteString(m.Role + ":" + m.Content + "\n")
		}
		a, b, _ := strings.Cut(text.String(), cut)
		if cut == "" {
			a, b = text.String(), ""
		}
		return bytesOf(a), bytesOf(b), nil
	}
	for _, name := range coreModels {
		m := core(t, processor(t, 2, ""), name, ModelConfig{Chat: chat, Tokenizer: byteTokens{}})
		s := fromRows(t, m, mixedRows(8, 90, m))
		var logits [][]float32
		for _, where := range []Placement{{}, {InTurn: true, Before: "Evidence: ", After: " Question: "}} {
			for _, form := range []Form{Embeddings, TokenIDs} {
				to := &inbox{m: m, history: []jinja.Message{{Role: "system", Content: "be brief"}}}
				if err := Transfer(bg, []Source{s}, []Receiver{to}, []Request{{Text: "where?"}}, Config{Form: form, Placement: where}); err != nil {
					t.Fatal(err)
				}
				p := to.plans[0]
				rows, inherited, err := p.Assemble(m, to.got[0])
				if err != nil {
					t.Fatal(err)
				}
				n := to.got[0].Positions()
				if where.InTurn != (p.At > 0) || inherited != p.At+n || len(rows) != len(p.Prompt)+n {
					t.Errorf("%s: rows at %d, %d inherited of %d", name, p.At, inherited, len(rows))
				}
				if want := "user:Evidence: "; where.InTurn && !strings.HasSuffix(textOf(p.Prompt[:p.At]), want) {
					t.Errorf("%s: the rows stand after %q", name, textOf(p.Prompt[:p.At]))
				}
				whole := fromRows(t, m, rows)
				half := fromRows(t, m, rows[:len(rows)/2])
				rest, err := half.Extend(bg, rows[len(rows)/2:])
				if err != nil {
					t.Fatal(err)
				}
				defer rest.Release()
				fingerprint(t, whole).same(t, rest)
				logits = append(logits, whole.LastHidden)
			}
		}
		if !sameBits(logits[0], logits[1]) || !sameBits(logits[2], logits[3]) || sameBits(logits[0], logits[2]) {
			t.Errorf("%s: the forms must agree and the placements must not", name)
		}
	}
}

// byteTokens is a tokenizer of bytes.
type byteTokens struct{}

func bytesOf(s string) (ids []int32) {
	for _, b := range []byte(s) {
		ids = append(ids, int32(b))
	}
	return ids
}

func textOf(ids []int32) string {
	var b []byte
	for _, id := range ids {
		b = append(b, byte(id))
	}
	return string(b)
}

func (byteTokens) Encode(dst []int32, s string) []int32      { return append(dst, bytesOf(s)...) }
func (byteTokens) EncodePlain(dst []int32, s string) []int32 { return append(dst, bytesOf(s)...) }
func (byteTokens) Text(ids []int32) string                   { return textOf(ids) }
func (byteTokens) Size() int                                 { return 256 }
func (byteTokens) TokenBytes(id int32) []byte                { return []byte{byte(id)} }

// TestChainBudgets follows the counts of a chain: 82 positions, then what was received,
// 23 tokens and 2 latent rows per hop.
func TestChainBudgets(t *testing.T) {
	m := core(t, processor(t, 2, ""), "qwen3-tied-fp32", ModelConfig{})
	for _, c := range []struct {
		cfg  Config
		want []int
	}{{Config{}, []int{21, 28, 35, 42}}, {Config{Budget: 100}, []int{82, 100, 100, 100}}} {
		var carried Delivery
		for hop, want := range c.want {
			n := 23
			if hop == 0 {
				n = 80
			}
			rows, inherited, err := Plan{Prompt: script(uint64(hop), n, m.Info.Vocab), Limit: m.Info.Context}.Assemble(m, carried)
			if err != nil {
				t.Fatal(err)
			}
			s := fromRows(t, m, rows)
			s.Inherited = inherited
			grown, err := LatentMass(bg, s, LatentConfig{Steps: 2})
			if err != nil {
				t.Fatal(err)
			}
			defer grown.Release()
			to := &inbox{m: m}
			if err := Transfer(bg, []Source{grown}, []Receiver{to}, []Request{{IDs: []int32{4, 5}}}, c.cfg); err != nil {
				t.Fatal(err)
			}
			if carried = to.got[0]; carried.Positions() != want {
				t.Errorf("%+v: hop %d carries %d of %d positions, want %d", c.cfg, hop, carried.Positions(), grown.Len(), want)
			}
		}
	}
}

// failing is a selector that fails for its n-th call.
type failing struct {
	n     int
	calls int
	err   error
	end   func()
}

func (f *failing) Select(_ context.Context, s *Sender, _ []int32, budget int) ([]int, error) {
	if f.calls++; f.calls == f.n {
		if f.end != nil {
			f.end()
		}
		if f.err != nil {
			return nil, f.err
		}
	}
	return []int{0}, nil
}

// TestNothingHalf: a failure or the end of the context before everything is made
// delivers nothing; one of a receiver keeps what was delivered before it.
func TestNothingHalf(t *testing.T) {
	m := core(t, processor(t, 2, ""), "qwen35-8l-bf16", ModelConfig{})
	counted := &layerCounter{FFN: m.dec.Blocks[2].FFN}
	m.dec.Blocks[2].FFN = counted
	var from []Source
	var prints []print
	for i := range 3 {
		s := fromRows(t, m, mixedRows(uint64(i), 30+10*i, m))
		from, prints = append(from, s), append(prints, fingerprint(t, s))
	}
	requests := []Request{{IDs: []int32{1}}, {IDs: []int32{2}}}
	broken := errors.New("broken")
	bytes := m.pool.Bytes()
	check := func(what string, err, want error, boxes ...*inbox) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%s: error %v, want %v", what, err, want)
		}
		for _, b := range boxes {
			if len(b.got) > 0 {
				t.Errorf("%s: something was delivered", what)
			}
		}
		for i, p := range prints {
			p.same(t, from[i].(*Sender))
		}
		if n := m.pool.Bytes(); n != bytes {
			t.Errorf("%s: %d bytes of states, %d before", what, n, bytes)
		}
	}
	a, b := &inbox{m: m}, &inbox{m: m}
	to := []Receiver{a, b}
	err := Transfer(bg, from, to, requests, Config{Selector: &failing{n: 6, err: broken}})
	check("the last selection fails", err, broken, a, b)
	var where *SelectionError
	if !errors.As(err, &where) || where.Sender != 2 || where.Request != 1 || !errors.Is(err, ErrSelection) || Code(err) != "selector" {
		t.Errorf("the error %v does not say where", err)
	}
	ctx, cancel := context.WithCancel(bg)
	err = Transfer(ctx, from, to, requests, Config{Selector: &failing{n: 6, err: broken, end: cancel}})
	if check("cancelled with a failure", err, broken, a, b); err == nil {
		t.Error("no error")
	}
	late, end := context.WithCancel(bg)
	check("cancelled by the last selection", Transfer(late, from, to, requests, Config{Selector: &failing{n: 6, end: end}}), context.Canceled, a, b)
	err = Transfer(ctx, from, to, requests, Config{})
	if check("cancelled before", err, context.Canceled, a, b); err != ctx.Err() {
		t.Errorf("error %v, want the context's own", err)
	}
	total := counted.n.Load()
	if err := Transfer(bg, from, []Receiver{ReceiverFunc(func(context.Context, Delivery) error { return nil })}, requests, Config{}); err != nil {
		t.Fatal(err)
	}
	total = counted.n.Load() - total
	for n := int64(1); n < total; n += total/5 + 1 { // in a capture; the last layer of the last one has nobody to ask
		ctx, cancel := context.WithCancel(bg)
		counted.at, counted.do = counted.n.Load()+n, cancel
		check(fmt.Sprintf("cancelled in layer %d of %d", n, total), Transfer(ctx, from, to, requests, Config{Parallel: 1 + int(n%2)}), context.Canceled, a, b)
		cancel()
	}
	for _, c := range []struct {
		cfg  Config
		want error
	}{
		{Config{Budget: 1, Reason: Latent{Steps: 2}, ReasonContext: Selected, ReasonBudget: 2}, ErrBudget},
		{Config{Reason: ReasonerFunc(func(context.Context, *Sender, int, []int32) (*Sender, error) { return nil, broken })}, broken},
		{Config{Reason: ReasonerFunc(func(context.Context, *Sender, int, []int32) (*Sender, error) { return nil, nil })}, ErrReason},
		{Config{Selector: ChunkKV{Window: 45}}, ErrSelection},
		{Config{Ratio: 2, Budget: 2}, ErrOption},
	} {
		check(fmt.Sprintf("%+v", c.cfg), Transfer(bg, from, to, requests, c.cfg), c.want, a, b)
	}

	b.fail = broken
	err = Transfer(bg, from, to, requests, Config{})
	check("the second receiver fails", err, broken, b)
	if len(a.got) != 1 {
		t.Errorf("%d deliveries before the failure, want 1", len(a.got))
	}
}

// layerCounter counts the layers that run, and does something at one of them.
type layerCounter struct {
	nn.FFN
	n  atomic.Int64
	at int64
	do func()
}

func (c *layerCounter) Apply(x *nn.Ctx, dst, src tensor.Tensor) {
	if c.n.Add(1) == c.at {
		c.do()
	}
	c.FFN.Apply(x, dst, src)
}

// TestTightestReceiver fits all messages of a request to the receiver with least room.
func TestTightestReceiver(t *testing.T) {
	m := core(t, processor(t, 2, ""), "qwen3-tied-fp32", ModelConfig{})
	from := []Source{tokens(t, m, script(1, 40, m.Info.Vocab)), tokens(t, m, script(2, 80, m.Info.Vocab))}
	wide, tight := &inbox{m: m, limit: 200}, &inbox{m: m, limit: 20}
	requests := []Request{{IDs: []int32{1, 2, 3}}, {IDs: []int32{1, 2, 3, 4, 5, 6, 7}}}
	if err := Transfer(bg, from, []Receiver{wide, tight}, requests, Config{Record: true}); err != nil {
		t.Fatal(err)
	}
	for _, b := range []*inbox{wide, tight} {
		for q, want := range [][]int{{8, 7}, {6, 5}} {
			for i, n := range want {
				if got := b.got[q].Messages[i].Positions(); got != n {
					t.Errorf("request %d: %d positions of sender %d, want %d", q, got, i, n)
				}
			}
		}
	}
	tight.limit = 6
	err := Transfer(bg, from, []Receiver{wide, tight}, requests[:1], Config{})
	var fit *FitError
	if !errors.As(err, &fit) || fit.Available != 1 || fit.Needed != 2 || !errors.Is(err, ErrReceiverFull) {
		t.Errorf("error %v, want room for 1 and a need of 2", err)
	}
}

// TestParallelTransfers runs transfers between two agents' senders that share a model,
// and within one transfer several senders at once, with the bits of one at a time.
func TestParallelTransfers(t *testing.T) {
	for _, name := range []string{coreModels[0], coreModels[2]} {
		m := core(t, processor(t, 2, ""), name, ModelConfig{})
		var from []Source
		for i := range 4 {
			from = append(from, fromRows(t, m, mixedRows(uint64(i), 40+13*i, m)))
		}
		requests := []Request{{IDs: []int32{3, 1, 4}}, {IDs: []int32{1, 5, 9, 2}}}
		run := func(cfg Config) [][]float32 {
			box := &inbox{m: m}
			cfg.Record = true
			if err := Transfer(bg, from, []Receiver{box}, requests, cfg); err != nil {
				t.Error(err)
				return nil
			}
			var l [][]float32
			for _, d := range box.got {
				for _, msg := range d.Messages {
					l = append(l, msg.rows)
				}
			}
			return l
		}
		want := run(Config{Parallel: 1})
		var wg sync.WaitGroup
		for k := range 3 {
			wg.Go(func() {
				got := run(Config{Parallel: 1 + 3*(k%2)})
				for i := range want {
					if i >= len(got) || !sameBits(got[i], want[i]) {
						t.Errorf("%s: message %d differs when others run", name, i)
					}
				}
			})
		}
		wg.Wait()
	}
}

// TestParallelAgents runs two agents that share a model, each sending to the other
// while it appends, and receives.
func TestParallelAgents(t *testing.T) {
	m := core(t, processor(t, 2, ""), "qwen35-8l-bf16", ModelConfig{})
	var agents [2]*Agent
	for i := range agents {
		a, err := Bind(bg, m, AgentConfig{IDs: script(uint64(i), 50+9*i, m.Info.Vocab), MaxNewTokens: 4})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		agents[i] = a
	}
	var wg sync.WaitGroup
	for i, a := range agents {
		for k := range 3 {
			wg.Go(func() {
				err := Transfer(bg, []Source{a, agents[1-i]}, []Receiver{agents[1-i]}, []Request{{IDs: []int32{int32(k), 7}}}, Config{})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Go(func() {
			if err := a.Append(bg, []int32{1, 2, 3}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i, a := range agents {
		if r := a.Inspect(false); a.Len() != 3 || r.CachedPositions != 53+9*i {
			t.Errorf("agent %d has %d deliveries and %d positions", i, a.Len(), r.CachedPositions)
		}
	}
}

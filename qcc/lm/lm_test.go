package lm

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/backend/ref"
	"samebit/qcc"
)

// array is a tensor of a trace.
type array struct {
	Shape []int
	Data  []float32
}

type names map[string]*array

func (n names) get(name string) []float32 {
	if a := n[name]; a != nil {
		return a.Data
	}
	return nil
}

// lmTrace is a trace of testdata/qcc; its README says what the fields mean.
type lmTrace struct {
	ID        string
	Tolerance struct{ Float32 float64 }
	Config    struct {
		DModel      int      `json:"d_model"`
		NumHeads    int      `json:"num_heads"`
		HeadDim     int      `json:"head_dim"`
		Window      int      `json:"window_size"`
		Codes       int      `json:"num_codes"`
		Scales      int      `json:"num_scales"`
		MaxPosition int      `json:"max_position"`
		RopeTheta   *float64 `json:"rope_theta"`
		Invariant   bool     `json:"position_invariant"`
		Lexical     bool     `json:"lexical"`
		Active      int      `json:"active_codes"`
		Lazy        bool     `json:"lazy_decay"`
		Rank        int      `json:"correction_rank"`
		Pair        bool     `json:"prefix_pair_landmark"`
		LandTemp    float64  `json:"landmark_temperature"`
		Vocab       int
		Layers      int
		Position    string
	}
	Params struct {
		Embed  *array
		Pos    *array `json:"pos_embed"`
		LnfW   *array `json:"lnf_w"`
		LnfB   *array `json:"lnf_b"`
		Layers []json.RawMessage
	}
	Inputs struct {
		IDs *struct {
			Shape []int
			Data  []int32
		} `json:"input_ids"`
		Splits []int
	}
	Expected struct{ Logits *struct{ Data []float64 } }
}

func (tr *lmTrace) model(t *testing.T, dev backend.Device) *Model {
	t.Helper()
	c := tr.Config
	f := qcc.DefaultConfig(c.DModel, c.NumHeads)
	f.Dim, f.Window, f.Codes, f.Scales, f.MaxPosition, f.Rank = c.HeadDim, c.Window, c.Codes, c.Scales, c.MaxPosition, c.Rank
	f.PositionInvariant, f.Lexical, f.ActiveCodes, f.LazyDecay, f.LandmarkTemp = c.Invariant, c.Lexical, c.Active, c.Lazy, c.LandTemp
	if c.RopeTheta != nil {
		f.RoPE = &qcc.RoPE{Theta: *c.RopeTheta}
	}
	if c.Pair {
		f.Landmarks = qcc.LandmarksPrefixPair
	}
	m := Config{Layer: f, Layers: c.Layers, Vocab: c.Vocab, Position: Position(c.Position), MaxPosition: c.MaxPosition}
	if m.Position == "rope" {
		m.Position = None
	}
	p := &Params{Embed: tr.Params.Embed.Data, NormW: tr.Params.LnfW.Data, NormB: tr.Params.LnfB.Data}
	if tr.Params.Pos != nil {
		p.Positions = tr.Params.Pos.Data
	}
	for _, raw := range tr.Params.Layers {
		var l struct {
			Attn           names
			Ln1W           *array `json:"ln1_w"`
			Ln1B           *array `json:"ln1_b"`
			Ln2W           *array `json:"ln2_w"`
			Ln2B           *array `json:"ln2_b"`
			W1, B1, W2, B2 *array
		}
		if err := json.Unmarshal(raw, &l); err != nil {
			t.Fatal(err)
		}
		a := l.Attn
		p.Layers = append(p.Layers, LayerParams{
			Projections: qcc.Projections{Q: a.get("wq"), BQ: a.get("bq"), K: a.get("wk"), BK: a.get("bk"), V: a.get("wv"), BV: a.get("bv"), O: a.get("wo"), BO: a.get("bo")},
			Params: &qcc.Params{Gate: a.get("wg"), GateBias: a.get("bg"), Codes: a.get("codes"), Mix: a.get("mix_logits"), CorrV: a.get("corr_v"), CorrU: a.get("corr_u"),
				CorrScale: a.get("corr_scale"), LandmarkMix: a.get("landmark_mix")},
			Norm1W: l.Ln1W.Data, Norm1B: l.Ln1B.Data, Norm2W: l.Ln2W.Data, Norm2B: l.Ln2B.Data, W1: l.W1.Data, B1: l.B1.Data, W2: l.W2.Data, B2: l.B2.Data,
		})
	}
	x, err := New(dev, m, p)
	if err != nil {
		t.Fatalf("%s: %v", tr.ID, err)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	return x
}

func traces(t *testing.T) []*lmTrace {
	t.Helper()
	files, _ := filepath.Glob("../../testdata/qcc/lm*.json")
	if len(files) == 0 {
		t.Fatal("no traces")
	}
	var l []*lmTrace
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		tr := &lmTrace{}
		if err := json.Unmarshal(b, tr); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		l = append(l, tr)
	}
	return l
}

func decode(t *testing.T, m *Model, st *qcc.State, ids []int32, cuts []int) []float32 {
	t.Helper()
	out := make([]float32, len(ids)*m.Vocab)
	at := 0
	for _, n := range cuts {
		if err := m.Decode(context.Background(), out[at*m.Vocab:(at+n)*m.Vocab], st, ids[at:at+n]); err != nil {
			t.Fatal(err)
		}
		at += n
	}
	return out
}

func each(n int) []int {
	l := make([]int, n)
	for i := range l {
		l[i] = 1
	}
	return l
}

func same(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Errorf("%s: logit %d is %v, want %v", what, i, got[i], want[i])
			return
		}
	}
}

func TestTraces(t *testing.T) {
	for _, tr := range traces(t) {
		m := tr.model(t, ref.New())
		rows := tr.Inputs.IDs.Shape[1]
		for b := range tr.Inputs.IDs.Shape[0] {
			ids := tr.Inputs.IDs.Data[b*rows : (b+1)*rows]
			st, err := m.NewState()
			if err != nil {
				t.Fatal(err)
			}
			step := decode(t, m, st, ids, each(rows))
			want := tr.Expected.Logits.Data[b*len(step):]
			for i, x := range step {
				if e := math.Abs(float64(x)-want[i]) / (1 + math.Abs(want[i])); !(e <= tr.Tolerance.Float32) {
					t.Fatalf("%s: stream %d, logit %d is %v, want %v", tr.ID, b, i, x, want[i])
				}
			}
			st.Reset()
			same(t, tr.ID+" in chunks", decode(t, m, st, ids, tr.Inputs.Splits), step)
			st.Release()
			all := make([]float32, len(step))
			if err := m.Forward(context.Background(), all, ids); err != nil {
				t.Fatal(err)
			}
			same(t, tr.ID+" as a whole", all, step)
		}
	}
}

// Every device gives the same logits, and a text that is too long is refused.
func TestModel(t *testing.T) {
	c := DefaultConfig(23)
	c.Layer = qcc.DefaultConfig(20, 4)
	c.Layer.Window, c.Layers, c.MaxPosition = 5, 2, 40
	p, err := NewParams(c, 7)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	ids := make([]int32, 40)
	for i := range ids {
		ids[i] = int32(r.IntN(c.Vocab))
	}
	var want []float32
	dev, err := cpu.New(cpu.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	for _, d := range []backend.Device{ref.New(), dev} {
		m, err := New(d, c, p)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]float32, len(ids)*c.Vocab)
		if err := m.Forward(context.Background(), got, ids); err != nil {
			t.Fatal(err)
		}
		if want != nil {
			same(t, d.Name(), got, want)
		}
		want = got
		st, err := m.NewState()
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Decode(context.Background(), nil, st, nil); err != nil {
			t.Errorf("no tokens: %v", err)
		}
		if err := m.Decode(context.Background(), make([]float32, 41*c.Vocab), st, make([]int32, 41)); !errors.Is(err, qcc.ErrContextLimit) || st.Len() != 0 {
			t.Errorf("41 tokens: %v, want ErrContextLimit", err)
		}
		if err := m.Decode(context.Background(), make([]float32, c.Vocab), st, []int32{int32(c.Vocab)}); err == nil || st.Len() != 0 {
			t.Errorf("a token outside the vocabulary: %v, %d rows", err, st.Len())
		}
		st.Release()
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	c.Layers = 0
	if _, err := NewParams(c, 1); !errors.Is(err, qcc.ErrConfig) {
		t.Errorf("no layers: %v", err)
	}
}

// Sinusoids stay true far out, where float32 angles do not.
func TestSinusoids(t *testing.T) {
	const w = 15
	for _, pos := range []int{0, 1, 1000, 1 << 20, 1<<24 - 1} {
		v := sinusoids(pos, w)
		for i := range 8 {
			a := float64(pos) * math.Exp(-math.Log(10000)*float64(i)/8)
			if math.Abs(float64(v[i])-math.Sin(a)) > 3e-7 {
				t.Errorf("position %d: sine %d is %v, want %v", pos, i, v[i], math.Sin(a))
			}
			if i < w-8 && math.Abs(float64(v[8+i])-math.Cos(a)) > 3e-7 {
				t.Errorf("position %d: cosine %d is %v, want %v", pos, i, v[8+i], math.Cos(a))
			}
		}
	}
}

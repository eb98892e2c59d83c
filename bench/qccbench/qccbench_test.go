package qccbench

import (
	"math"
	"testing"

	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/bench"
	"samebit/qcc"
)

var small = Shell{Vocab: 64, Hidden: 32, Layers: 2, Heads: 4, Seed: 5}

func device(t *testing.T) backend.Device {
	t.Helper()
	dev, err := cpu.New(cpu.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev
}

func TestDecode(t *testing.T) {
	dev := device(t)
	for _, mode := range []Mode{Decode, Prefill} {
		r, err := RunDecode(t.Context(), dev, 150, DecodeConfig{Shell: small, Mode: mode, Chunk: 40, Steps: 1, Window: 20, Codes: 4})
		if err != nil {
			t.Fatal(err)
		}
		// 2 layers of 4 heads of 8: sums of 4 codes and 4 scales, and two rings of 20 rows.
		if want := (Elements{2 * 4 * 4 * 4 * 9, 2 * (4*4*4*9 + 2*20*32), 2 * 2 * 32 * 150, 19200. / 3712}); r.Elements != want {
			t.Errorf("%s: elements %+v, want %+v", mode, r.Elements, want)
		}
		if r.QCC <= 0 || r.Full <= 0 || math.Abs(r.Speedup*r.QCC/r.Full-1) > 1e-9 || !r.Synthetic || r.QCCOnly || !r.MatchedFullKV {
			t.Errorf("%s: %+v", mode, r)
		}
	}
	for what, c := range map[string]DecodeConfig{
		"a mode": {Mode: "both", Chunk: 1, Steps: 1}, "no steps": {Mode: Decode, Chunk: 1}, "no chunk": {Mode: Decode, Steps: 1},
		"a shell": {Mode: Decode, Chunk: 1, Steps: 1, Shell: Shell{Vocab: 4, Hidden: 6, Layers: 1, Heads: 4}},
	} {
		if _, err := RunDecode(t.Context(), dev, 9, c); err == nil {
			t.Errorf("%s was taken", what)
		}
	}
}

func TestSlope(t *testing.T) {
	if s := slope([]float64{1, 2, 4, 8}, []float64{3, 12, 48, 192}); math.Abs(s-2) > 1e-12 {
		t.Errorf("slope of squares %v", s)
	}
	if s := slope([]float64{5}, []float64{3}); s != 0 {
		t.Errorf("slope of a point %v", s)
	}
}

func TestSpeed(t *testing.T) {
	if testing.Short() {
		t.Skip("a text of 600 tokens with the published shape")
	}
	r, err := RunSpeed(t.Context(), device(t), SpeedConfig{Contexts: []int{300}, Tokens: 3, Prompts: []int{300}, Repeat: 1, Chunk: 100}, nil)
	if err != nil || len(r.Decode) != 1 || len(r.Prefill) != 1 || r.Decode[0].Speedup <= 0 || r.Prefill[0].Length != 300 {
		t.Errorf("%+v, %v", r, err)
	}
}

// Memory is what the configuration says, to the byte, and stays so.
func TestStream(t *testing.T) {
	dev := device(t)
	total := 20000
	if testing.Short() {
		total = 3000
	}
	d, err := small.open(dev)
	if err != nil {
		t.Fatal(err)
	}
	r, err := RunStream(t.Context(), dev, d, StreamConfig{Total: total, Chunk: 100, Window: 100, Codes: 4})
	if err != nil {
		t.Fatal(err)
	}
	// Three planes per layer, in pages of 64 slots: 100 rows and one that leaves them lie
	// in two or three pages; both banks of 4 heads, 4 codes, 4 scales, 8 values and a weight.
	page, banks := int64(4*6*4*64*8), int64(2*4*2*4*4*4*9)
	if r.Mismatch != 0 || r.State != r.Accounted || r.Most != 3*page+banks || r.FullKV != int64(4*2*2*32*total) {
		t.Errorf("%+v, want at most %d bytes", r, 3*page+banks)
	}
	if bench.ResidentBytes() == 0 {
		t.Skip("the system does not say how large a process is")
	}
	// The whole is some 20 MB here, of which a garbage collector may hold a part for a
	// moment; the command's test of a million tokens demands 1 %.
	if r.Filled == 0 || r.Peak == 0 || r.Growth > 0.2 {
		t.Errorf("resident bytes: %d when the window was full, %d later", r.Filled, r.Peak)
	}
}

// The published figures of a state's size.
func TestLong(t *testing.T) {
	dev := device(t)
	for n, want := range map[int]float64{128_000: 0.125781, 1_000_000: 0.016100, 4_000_000: 0.004025} {
		r, err := RunLong(t.Context(), dev, LongConfig{Shell: Shell{Vocab: 16, Hidden: 256, Layers: 2, Heads: 8}, Length: n, Chunk: 1, Window: 128, Codes: 16, StateOnly: true, Tokens: 1})
		if err != nil || math.Abs(r.StateFraction-want) > 5e-7 || r.Ran || r.UnderTenth != (n > 128_000) || !r.UnderHalf || r.Bounded != 4*164864 {
			t.Errorf("%d tokens: %+v, %v; want %v %%", n, r, err, want)
		}
	}
	r, err := RunLong(t.Context(), dev, LongConfig{Shell: small, Length: 500, Chunk: 64, Window: 16, Codes: 4, Lexical: true, Tokens: 3})
	if err != nil || !r.Ran || r.TPOT <= 0 || r.PrefillSeconds <= 0 || r.MatchedFullKV {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestHeads(t *testing.T) {
	if _, err := openPair(t.Context(), device(t), small, func(c *qcc.Config) { c.Window = 0 }); err == nil {
		t.Error("a window of no rows was taken")
	}
}

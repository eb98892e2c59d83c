package qcc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"samebit/checkpoint"
	"samebit/nn"
	"samebit/state"
	"samebit/tensor"
)

// A retrofit replaces full attention only, once, and leaves the model alone.
func TestPatchLayers(t *testing.T) {
	for name, all := range map[string][]int{"qwen3-tied-fp32": nil, "qwen35-8l-fp32": {3, 7}} {
		d, pool, runner := model(t, name)
		if all == nil {
			for i := range d.Blocks {
				all = append(all, i)
			}
		}
		before := appendAll(t, runner(d), tokens(1, 40, d.Vocab))
		p := retrofit(t, d, pool.Device(), func(r *Retrofit) { r.Config.Window = 8 })
		if !slices.Equal(p.Layers, all) {
			t.Errorf("%s: layers %v were replaced, want %v", name, p.Layers, all)
		}
		if p.Decoder.ID == d.ID || p.Decoder.Shapes.KV.Layers != 0 {
			t.Errorf("%s: the retrofit has the model's ID, or %d layers with a cache", name, p.Decoder.Shapes.KV.Layers)
		}
		a, err := NewAdapter(p.Decoder, Retrofit{}, 1)
		if err != nil || len(a.Layers) != 0 {
			t.Fatalf("%s: a second retrofit wants layers %v: %v", name, a.Layers, err)
		}
		again, err := Patch(pool.Device(), p.Decoder, a)
		if err != nil || again.Decoder != p.Decoder || len(again.Layers) != 0 {
			t.Errorf("%s: a second retrofit changed layers %v: %v", name, again.Layers, err)
		}
		again.Close()
		sameBits(t, name+": the model itself", appendAll(t, runner(d), tokens(1, 40, d.Vocab)), before)

		some := retrofit(t, d, pool.Device(), func(r *Retrofit) { r.Config.Window, r.Layers = 8, all[1:] })
		rows := tokens(2, 60, d.Vocab)
		one := appendAll(t, runner(some.Decoder), rows, ones(60)...)
		sameBits(t, name+": some layers in chunks", appendAll(t, runner(some.Decoder), rows, 11, 1, 30), one)
		if slicesEqual(one, appendAll(t, runner(p.Decoder), rows)) {
			t.Errorf("%s: some layers are as all", name)
		}
		if _, err := NewAdapter(some.Decoder, Retrofit{KV: KVRepeat}, 1); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: the rest of a retrofitted model: %v", name, err)
		}
	}
}

func TestPatchRefuses(t *testing.T) {
	d, pool, _ := model(t, "qwen35-8l-fp32")
	dense, densePool, _ := model(t, "qwen3-tied-fp32")
	for what, r := range map[string]Retrofit{
		"grouped queries":    {},
		"another policy":     {KV: "split"},
		"a recurrent layer":  {KV: KVRepeat, Layers: []int{2}},
		"no such layer":      {KV: KVRepeat, Layers: []int{8}},
		"layers twice":       {KV: KVRepeat, Layers: []int{3, 3}},
		"no layers":          {KV: KVRepeat, Layers: []int{}},
		"a bad window":       {KV: KVRepeat, Config: Config{Codes: 4, Scales: 2, LandmarkTemp: 1, MaxPosition: 9}},
		"exact, no archive":  {KV: KVRepeat, ExactPrefill: true, Config: Config{Codes: 4, Scales: 2, LandmarkTemp: 1, MaxPosition: 9, Window: 4, NoArchive: true}},
		"exact tier, shared": {KV: KVShare, Config: Config{Codes: 4, Scales: 2, LandmarkTemp: 1, MaxPosition: 9, Window: 4, Exact: DefaultExact()}},
	} {
		if _, err := NewAdapter(d, r, 1); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := ModelConfig(&nn.Decoder{}); !errors.Is(err, ErrConfig) {
		t.Errorf("a model without layers: %v", err)
	}
	a, err := NewAdapter(d, Retrofit{KV: KVRepeat}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Patch(densePool.Device(), dense, a); !errors.Is(err, ErrDigest) {
		t.Errorf("an adapter of another model: %v", err)
	}
	b := *a
	b.Params = slices.Clone(a.Params)
	b.Params[1] = &Params{}
	if _, err := Patch(pool.Device(), d, &b); !errors.Is(err, ErrShape) {
		t.Errorf("an adapter without values: %v", err)
	}
	b = *a
	b.Config.Dim, b.Config.Codes = 2*a.Config.Dim, 1
	if _, err := Patch(pool.Device(), d, &b); err == nil {
		t.Error("an adapter of another width was taken")
	}
	if _, err := Patch(pool.Device(), d, &Adapter{Base: d.ID}); !errors.Is(err, ErrConfig) {
		t.Errorf("an adapter without layers: %v", err)
	}
}

// Set and LoadAdapter take over values, in place, and refuse others without a trace.
func TestSetAdapter(t *testing.T) {
	d, pool, runner := model(t, "qwen3-tied-fp32")
	p := retrofit(t, d, pool.Device(), func(r *Retrofit) { r.Config.Window = 8 })
	rows := tokens(2, 40, d.Vocab)
	first, id := appendAll(t, runner(p.Decoder), rows), p.Decoder.ID

	other := p.Adapter(Manifest{RunID: "two"})
	for i, q := range other.Params {
		Normal(q.Codes, uint64(i), "other", 1)
		Normal(q.CorrU, uint64(i), "other u", 0.3)
	}
	var file bytes.Buffer
	if _, err := other.WriteTo(&file); err != nil {
		t.Fatal(err)
	}
	size := file.Len()
	m, err := p.LoadAdapter(&file)
	if err != nil || m.RunID != "two" || m.TrainableCount != other.count() {
		t.Fatalf("loaded %d bytes, %+v: %v", size, m, err)
	}
	second := appendAll(t, runner(p.Decoder), rows)
	if slicesEqual(second, first) || p.Decoder.ID == id {
		t.Error("an adapter of other values changes nothing")
	}
	fresh, err := Patch(pool.Device(), d, other)
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close()
	if fresh.Decoder.ID != p.Decoder.ID {
		t.Error("the same adapter gives another ID")
	}
	sameBits(t, "a model patched with it", appendAll(t, runner(fresh.Decoder), rows), second)

	for what, change := range map[string]func(a *Adapter) error{
		"another model":  func(a *Adapter) error { a.Base[0]++; return ErrDigest },
		"another window": func(a *Adapter) error { a.Config.Window = 9; return ErrConfig },
		"fewer layers":   func(a *Adapter) error { a.Layers, a.Params = a.Layers[1:], a.Params[1:]; return ErrConfig },
		"a NaN": func(a *Adapter) error {
			a.Params[1].Codes[3] /= 0
			a.Params[1].Codes[3] -= a.Params[1].Codes[3]
			return ErrShape
		},
		"half the codes": func(a *Adapter) error { a.Params[0].Codes = a.Params[0].Codes[1:]; return ErrShape },
		"nothing":        func(a *Adapter) error { *a = Adapter{}; return ErrConfig },
	} {
		a := p.Adapter(Manifest{})
		want := change(a)
		if err := p.Set(a); !errors.Is(err, want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	sameBits(t, "after refused adapters", appendAll(t, runner(p.Decoder), rows), second)

	// What is trained lies on the device, and is seen after Pull.
	s := mustStream(t, pool.Device())
	defer s.Close()
	for _, x := range p.Trained() {
		if x.Name == "gate.bias" {
			s.Write(x.Tensor, tensor.AsBytes([]float32{30, 30, 30, 30}[:x.Tensor.Len()]))
		}
	}
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	id = p.Decoder.ID
	if err := p.Pull(); err != nil || p.Decoder.ID == id || p.Adapter(Manifest{}).Params[1].GateBias[1] != 30 {
		t.Errorf("after training: %v, ID %v", err, p.Decoder.ID)
	}
}

// An adapter without an exact tier serves a retrofit with one.
func TestAdapterIntoHybrid(t *testing.T) {
	d, pool, _ := model(t, "qwen3-tied-fp32")
	plain := retrofit(t, d, pool.Device(), func(r *Retrofit) { r.Config.Window = 8 })
	tier := retrofit(t, d, pool.Device(), func(r *Retrofit) { r.Config.Window, r.Config.Exact = 8, &Exact{Sets: 4, Ways: 2, Probe: 2} })
	a := plain.Adapter(Manifest{})
	Normal(a.Params[0].Codes, 9, "hybrid", 1)
	want := tier.Adapter(Manifest{}).Params[0].SetCodes
	if err := tier.Set(a); err != nil {
		t.Fatal(err)
	}
	got := tier.Adapter(Manifest{}).Params[0]
	sameBits(t, "codes", got.Codes, a.Params[0].Codes)
	sameBits(t, "set codes", got.SetCodes, want)
	if err := plain.Set(tier.Adapter(Manifest{})); !errors.Is(err, ErrConfig) {
		t.Errorf("an adapter with an exact tier, in a retrofit without: %v", err)
	}
}

// After an exact prompt the logits are the model's own, whatever the chunks, and a
// window that covers everything goes on as the model does.
func TestExactPrefill(t *testing.T) {
	ctx := context.Background()
	for _, name := range []string{"qwen3-tied-fp32", "qwen35-8l-fp32"} {
		d, pool, runner := model(t, name)
		all, _ := replaceable(d)
		for i, set := range []func(r *Retrofit){
			func(r *Retrofit) { r.Config.Window = 20 },
			func(r *Retrofit) { r.Config.Window, r.Layers = 11, all[:1] },
			func(r *Retrofit) {
				r.Config.Window, r.Config.Exact, r.Config.ActiveQuery = 9, &Exact{Sets: 3, Ways: 2, MassMerge: true, QualityFirst: true}, true
			},
			func(r *Retrofit) { r.Config.Window = 512 },
		} {
			what := fmt.Sprintf("%s, kind %d", name, i)
			bounded := retrofit(t, d, pool.Device(), set)
			p := retrofit(t, d, pool.Device(), func(r *Retrofit) { set(r); r.ExactPrefill = true })
			if p.Decoder.ID == bounded.Decoder.ID {
				t.Errorf("%s: sequences that begin exactly and others have one ID", what)
			}
			prompt, more := tokens(3, 70, d.Vocab), tokens(4, 9, d.Vocab)
			full := runner(d)
			want := appendAll(t, full, prompt)
			var next [][]float32
			for _, chunk := range []int{512, 1, 33} {
				r := runner(p.Decoder)
				if err := p.Prefill(ctx, pool, r, prompt, nn.RunnerConfig{ChunkRows: chunk}); err != nil {
					t.Fatal(what, err)
				}
				sameBits(t, what+": the prompt", r.Logits(), want)
				next = append(next, appendAll(t, r, more, chunk))
			}
			sameBits(t, what+" in steps", next[1], next[0])
			sameBits(t, what+" in chunks", next[2], next[0])
			wanted := appendAll(t, full, more)
			if covered := i == 3; covered != slicesEqual(next[0], wanted) {
				t.Errorf("%s: after the prompt, equal to full attention: %v", what, !covered)
			}
			if i == 3 {
				continue
			}
			if slicesEqual(next[0], appendAll(t, runner(bounded.Decoder), slices.Concat(prompt, more))) {
				t.Errorf("%s: an exact prompt is as a bounded one", what)
			}
		}
		p := retrofit(t, d, pool.Device(), func(r *Retrofit) {})
		if err := p.Prefill(ctx, pool, runner(p.Decoder), tokens(3, 7, d.Vocab), nn.RunnerConfig{}); !errors.Is(err, ErrConfig) {
			t.Errorf("an exact prompt of a retrofit without: %v", err)
		}
		p = retrofit(t, d, pool.Device(), func(r *Retrofit) { r.ExactPrefill = true })
		r := runner(p.Decoder)
		before := appendAll(t, r, tokens(1, 5, d.Vocab))
		stopped, cancel := context.WithCancel(ctx)
		cancel()
		if err := p.Prefill(stopped, pool, r, tokens(3, 7, d.Vocab), nn.RunnerConfig{}); !errors.Is(err, context.Canceled) {
			t.Errorf("a cancelled prompt: %v", err)
		}
		sameBits(t, "after a cancelled prompt", r.Logits(), before)
	}
}

// The first layer's archive does not depend on how later layers attend.
func TestExactPrefillFillsTheArchive(t *testing.T) {
	d, pool, runner := model(t, "qwen3-tied-fp32")
	set := func(r *Retrofit) { r.Config.Window = 9 }
	b := retrofit(t, d, pool.Device(), set)
	p := retrofit(t, d, pool.Device(), func(r *Retrofit) { set(r); r.ExactPrefill = true })
	rows := tokens(3, 50, d.Vocab)
	one, two := runner(b.Decoder), runner(p.Decoder)
	appendAll(t, one, rows)
	if err := p.Prefill(t.Context(), pool, two, rows, nn.RunnerConfig{}); err != nil {
		t.Fatal(err)
	}
	numerators := func(st state.State) (first, rest []float32) {
		snap, err := st.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		defer snap.Release()
		snap.Save(func(name string, x tensor.Tensor) error {
			if name == "archive.numerator" {
				v, _ := x.F32()
				n := len(v) / x.Dim(0)
				first, rest = slices.Clone(v[:n]), slices.Clone(v[n:])
			}
			return nil
		})
		return first, rest
	}
	f1, r1 := numerators(one.State())
	f2, r2 := numerators(two.State())
	sameBits(t, "the first layer's sums", f2, f1)
	if slicesEqual(r1, r2) || len(r1) == 0 {
		t.Error("later layers' sums are those of bounded attention")
	}
}

func TestAdapterFile(t *testing.T) {
	d, pool, _ := model(t, "qwen3-tied-fp32")
	p := retrofit(t, d, pool.Device(), func(r *Retrofit) {
		r.Config.Window, r.Config.Decay = 8, []float64{0.9, 0.99, 0.999, 0.9999}
		r.Config.Exact = &Exact{Sets: 4, Ways: 2, Probe: 2}
		r.Config.Landmarks = LandmarksPersistent
	})
	var file, again bytes.Buffer
	if err := p.SaveAdapter(&file, Manifest{BaseModel: "small", ParameterCount: 1e6, Retrofit: RetrofitManifest{CodeInit: "kmeans", TrainChunks: 3}}); err != nil {
		t.Fatal(err)
	}
	a, err := ReadAdapter(bytes.NewReader(file.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if m := a.Manifest; m.TrainableFraction != float64(a.count())/1e6 || m.Retrofit.KV != KVRepeat || m.Retrofit.TrainChunks != 3 || m.Retrofit.Window != 8 {
		t.Errorf("manifest %+v", m)
	}
	if n, err := a.WriteTo(&again); err != nil || n != int64(file.Len()) || !bytes.Equal(again.Bytes(), file.Bytes()) {
		t.Errorf("written again: %d of %d bytes, other ones: %v", n, file.Len(), err)
	}
	q, err := Patch(pool.Device(), d, a)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if q.Decoder.ID != p.Decoder.ID {
		t.Error("the adapter of a file gives another ID")
	}
}

// edited writes an adapter after a change of its tensors and its manifest.
func edited(t testing.TB, file []byte, change func(list []checkpoint.Entry, meta map[string]string) []checkpoint.Entry) []byte {
	t.Helper()
	set, err := checkpoint.Parse("test", bytes.Clone(file))
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	var list []checkpoint.Entry
	for _, n := range set.Names() {
		e, err := set.Tensor(n)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, e)
	}
	meta := set.Metadata()
	var b bytes.Buffer
	if err := checkpoint.Write(&b, change(list, meta), meta); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// smallAdapter is the file of an adapter that no model has.
func smallAdapter(t testing.TB) []byte {
	c := smallConfig()
	c.Rank, c.RoPE, c.PositionInvariant = 2, &RoPE{Model: true, Dim: 4}, true
	c.Exact = &Exact{Sets: 2, Ways: 2, Probe: 1}
	return adapterFile(t, c, Manifest{})
}

// adapterFile is the file of an adapter of two layers.
func adapterFile(t testing.TB, c Config, m Manifest) []byte {
	t.Helper()
	a := &Adapter{Manifest: m, Config: c, Layers: []int{1, 4}, Base: state.ID{1, 2}}
	for i := range 2 {
		p, err := NewParams(c, uint64(i))
		if err != nil {
			t.Fatal(err)
		}
		a.Params = append(a.Params, p)
	}
	var b bytes.Buffer
	if _, err := a.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestAdapterRefuses(t *testing.T) {
	file := smallAdapter(t)
	for n := 0; n < len(file); n += 1 + n/9 {
		if _, err := ReadAdapter(bytes.NewReader(file[:n])); !errors.Is(err, checkpoint.ErrCorrupt) {
			t.Fatalf("%d of %d bytes: %v", n, len(file), err)
		}
	}
	without := func(names ...string) []byte {
		return edited(t, file, func(list []checkpoint.Entry, meta map[string]string) []checkpoint.Entry {
			return slices.DeleteFunc(list, func(e checkpoint.Entry) bool { return slices.Contains(names, e.Name) })
		})
	}
	manifest := func(old, new string) []byte {
		return edited(t, file, func(list []checkpoint.Entry, meta map[string]string) []checkpoint.Entry {
			changed := bytes.Replace([]byte(meta["qcc"]), []byte(old), []byte(new), 1)
			if string(changed) == meta["qcc"] {
				t.Fatalf("the manifest has no %q: %s", old, changed)
			}
			meta["qcc"] = string(changed)
			return list
		})
	}
	for _, tt := range []struct {
		what string
		file []byte
		want error
	}{
		{"no codes", without("layers.4.codes"), checkpoint.ErrCorrupt},
		{"no gate", without("layers.1.gate.bias"), checkpoint.ErrCorrupt},
		{"no scales", without("layers.1.mix_logits"), checkpoint.ErrCorrupt},
		{"another format", manifest("qcc-adapter/1", "qcc-adapter/2"), checkpoint.ErrCorrupt},
		{"an unknown option", manifest(`"num_codes"`, `"num_kodes"`), checkpoint.ErrCorrupt},
		{"no JSON", manifest(`{`, `[`), checkpoint.ErrCorrupt},
		{"a short digest", manifest(`"base_digest":"0102`, `"base_digest":"`), checkpoint.ErrCorrupt},
		{"another count", manifest(`"trainable_parameter_count":`, `"trainable_parameter_count":1`), checkpoint.ErrCorrupt},
		{"layers that fall", manifest(`"patched_layers":[1,4]`, `"patched_layers":[4,1]`), checkpoint.ErrCorrupt},
		{"a layer twice", manifest(`"patched_layers":[1,4]`, `"patched_layers":[1,1]`), checkpoint.ErrCorrupt},
		{"a layer too few", manifest(`"patched_layers":[1,4]`, `"patched_layers":[1]`), checkpoint.ErrCorrupt},
		{"no layers", manifest(`"patched_layers":[1,4]`, `"patched_layers":[]`), ErrConfig},
		{"a rate too few", manifest(`"decay_rates":[0.8`, `"decay_rates":[0.8,0.8`), checkpoint.ErrCorrupt},
		{"no window", manifest(`"window":4,`, `"window":0,`), ErrConfig},
		{"other codes", manifest(`"codes":5,`, `"codes":6,`), ErrShape},
		{"codes by the million", manifest(`"codes":5,`, `"codes":16777216,`), ErrShape},
		{"a rate of 2", manifest(`"decay_rates":[0.8`, `"decay_rates":[2.8`), ErrConfig},
		{"too much to begin with", edited(t, without("layers.1.set_codes", "layers.4.set_codes"), func(list []checkpoint.Entry, meta map[string]string) []checkpoint.Entry {
			meta["qcc"] = string(bytes.Replace([]byte(meta["qcc"]), []byte(`"sets":2,`), []byte(`"sets":1000000,`), 1))
			return list
		}), checkpoint.ErrCorrupt},
		{"a foreign tensor", edited(t, file, func(list []checkpoint.Entry, meta map[string]string) []checkpoint.Entry {
			return append(list, checkpoint.Entry{Name: "layers.0.codes", Type: checkpoint.F32, Shape: []int{1}, Data: make([]byte, 4)})
		}), checkpoint.ErrCorrupt},
		{"a NaN", edited(t, file, func(list []checkpoint.Entry, meta map[string]string) []checkpoint.Entry {
			list[0].Data = slices.Clone(list[0].Data)
			copy(list[0].Data, []byte{0, 0, 0xc0, 0x7f})
			return list
		}), ErrShape},
	} {
		if _, err := ReadAdapter(bytes.NewReader(tt.file)); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", tt.what, err)
		}
	}
	// Many layers that each leave out little leave out much.
	c := DefaultConfig(2, 1)
	remote := 0.1
	c.Codes, c.Scales, c.Rank, c.Remote = 1, 1, 1<<18, &remote
	wide := Manifest{Format: adapterFormat, Digest: strings.Repeat("00", 32), Config: &c}
	var list []checkpoint.Entry
	for l := range 5 { // 2^20 and 2^18 values are missing in each
		wide.Retrofit.Layers = append(wide.Retrofit.Layers, l)
		list = append(list, checkpoint.Entry{Name: tensorName(l, "codes"), Type: checkpoint.F32, Shape: []int{1, 1, 2}, Data: make([]byte, 8)},
			checkpoint.Entry{Name: tensorName(l, "mix_logits"), Type: checkpoint.F32, Shape: []int{1, 1, 1}, Data: make([]byte, 4)})
	}
	text, err := json.Marshal(wide)
	if err != nil {
		t.Fatal(err)
	}
	var small bytes.Buffer
	if err := checkpoint.Write(&small, list, map[string]string{"format": adapterFormat, "qcc": string(text)}); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadAdapter(&small); !errors.Is(err, checkpoint.ErrCorrupt) || !strings.Contains(err.Error(), "no tensor layers.3.corr_v") {
		t.Errorf("a file that leaves out more and more: %v", err)
	}
	// What may be missing begins as new.
	a, err := ReadAdapter(bytes.NewReader(without("layers.1.corr_u", "layers.1.corr_scale", "layers.4.adm_bias", "layers.4.exact_mix")))
	if err != nil {
		t.Fatal(err)
	}
	if a.Params[0].CorrU[1] != 0 || a.Params[1].AdmBias[0] != -4 || a.Params[1].ExactMix[1] != -4 {
		t.Error("missing tensors do not begin as new ones do")
	}
}

func FuzzReadAdapter(f *testing.F) {
	delta := deltaSmall()
	bare := delta
	bare.AddressRank, bare.PositionInvariant = 0, true
	white := smallConfig()
	white.AddressRank = 2
	fitted := Manifest{Retrofit: RetrofitManifest{Calibrated: []int{4}, TrainChunks: 3, CodeInit: "whitened", CodeInitTokens: 256, Validation: map[string]float64{"cosine": 0.5}}}
	var seeds [][]byte
	for _, file := range [][]byte{smallAdapter(f), adapterFile(f, delta, fitted), adapterFile(f, bare, Manifest{}), adapterFile(f, white, fitted)} {
		seeds = append(seeds, file, file[:len(file)/2])
		for _, n := range []int{9, 60, 200, 500, 900, len(file) - 3} {
			b := bytes.Clone(file)
			b[n] ^= 0x11
			seeds = append(seeds, b)
		}
	}
	for _, both := range []bool{false, true} { // a file says twice of what format it is
		foreign := func(file []byte, from, to string) []byte {
			return edited(f, file, func(list []checkpoint.Entry, meta map[string]string) []checkpoint.Entry {
				if meta["format"] = to; both {
					meta["qcc"] = strings.Replace(meta["qcc"], from, to, 1)
				}
				return list
			})
		}
		seeds = append(seeds, foreign(adapterFile(f, delta, fitted), deltaFormat, adapterFormat), foreign(adapterFile(f, white, fitted), adapterFormat, deltaFormat))
	}
	for _, b := range seeds {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := ReadAdapter(bytes.NewReader(data))
		if err != nil {
			return
		}
		if err := a.check(); err != nil {
			t.Fatalf("a file that was taken holds an adapter that is none: %v", err)
		}
		var b bytes.Buffer
		if _, err := a.WriteTo(&b); err != nil {
			t.Fatalf("a file that was taken is not written: %v", err)
		}
		if c, err := ReadAdapter(&b); err != nil || c.count() != a.count() || c.Config.Digest() != a.Config.Digest() {
			t.Fatalf("written and read again: %v", err)
		}
	})
}

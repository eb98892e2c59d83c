package nn_test

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"samebit/backend"
	"samebit/backend/ref"
	"samebit/state"
	"samebit/tensor"
)

// noisy moves every key and value by half a unit of bf16's last place, up or down.
type noisy struct {
	backend.Stream
	rnd *rand.Rand
}

func (n *noisy) PutKV(p backend.Plan, layer int, k, v tensor.Tensor) {
	for _, t := range []tensor.Tensor{k, v} {
		for r := range t.Dim(0) {
			for h := range t.Dim(1) {
				for c, x := range t.Vec(r, h) {
					t.Vec(r, h)[c] = x + x*0x1p-9*float32(2*n.rnd.IntN(2)-1)
				}
			}
		}
	}
	n.Stream.PutKV(p, layer, k, v)
}

// apart is the root mean square difference of two runs' logits.
func apart(a, b [][]float32) float64 {
	sum, n := 0.0, 0
	for i := range a {
		for j := range a[i] {
			d := float64(a[i][j] - b[i][j])
			sum += d * d
			n++
		}
	}
	return math.Sqrt(sum / float64(n))
}

// TestKVNear: rounding to bf16 moves logits by no more than noise of its largest error,
// 2^-9 of each key and value, does; and it does move them.
func TestKVNear(t *testing.T) {
	for _, model := range []string{"qwen3-tied-fp32", "qwen35-8l-bf16"} {
		wide, half := newRig(t, model, 0), newRig(t, model+bf16KV, 0)
		want := wide.scripts(model)[0]
		got := half.run(want.rows)
		noise := 0.0
		for seed := range uint64(3) {
			g := *wide
			g.stream = &noisy{wide.stream, rand.New(rand.NewPCG(seed, 4))}
			noise = max(noise, apart(g.run(want.rows).logits, want.logits))
		}
		d := apart(got.logits, want.logits)
		t.Logf("%s: logits %.2g from those of float32, noise of half a unit %.2g", model, d, noise)
		if d == 0 || d > noise {
			t.Errorf("%s: logits with bf16 keys and values are %g from those with float32: want more than 0 and at most %g", model, d, noise)
		}
	}
}

// TestKVTypes: states of one storage type are half the bytes of the other and no states
// of the other.
func TestKVTypes(t *testing.T) {
	const model = "qwen3-tied-fp32"
	wide, half := newRig(t, model, 0), newRig(t, model+bf16KV, 0)
	if wide.dec.ID == half.dec.ID {
		t.Error("storage types share an ID")
	}
	same, err := wide.dec.WithKV(tensor.F32)
	wide.must(err)
	if same.ID != wide.dec.ID {
		t.Error("a decoder asked for what it has has another ID")
	}
	same, err = half.dec.WithKV(tensor.BF16)
	if half.must(err); same.ID != half.dec.ID {
		t.Error("a decoder asked for what it has has another ID")
	}
	for _, dt := range []tensor.DType{tensor.F16, tensor.I8, tensor.Q8_0} {
		if _, err := wide.dec.WithKV(dt); err == nil {
			t.Errorf("keys and values in %v: no error", dt)
		}
	}
	if _, err := half.dec.WithKV(tensor.F32); err == nil {
		t.Error("a decoder with bf16 keys and values makes one with float32: no error")
	}
	bounded := *wide.dec
	bounded.Bounded = true
	if _, err := bounded.WithKV(tensor.BF16); err == nil {
		t.Error("a decoder of bounded memory makes one with a full cache in bf16: no error")
	}
	if _, _, err := bounded.Split(1); err == nil {
		t.Error("a decoder of bounded memory is split into two with a full cache: no error")
	}
	lower, upper, err := half.dec.Split(1)
	half.must(err)
	if lower.Shapes.KV.Type != tensor.BF16 || upper.Shapes.KV.Type != tensor.BF16 {
		t.Error("halves of a decoder keep keys and values in another type")
	}

	rows := wide.scripts(model)[0].rows[:130]
	files, snaps := map[*rig][]byte{}, map[*rig]state.Snapshot{}
	for _, g := range []*rig{wide, half} {
		r := g.runner(64)
		g.must(r.Append(bg, rows))
		files[g] = g.saved(r)
		snap, err := r.Snapshot()
		g.must(err)
		defer snap.Release()
		snaps[g] = snap
	}
	if a, b := snaps[wide].Bytes(), snaps[half].Bytes(); a != 2*b || a != wide.pool.Bytes() || b != half.pool.Bytes() {
		t.Errorf("snapshots of %d and %d bytes in pools of %d and %d, want half as many in bf16", a, b, wide.pool.Bytes(), half.pool.Bytes())
	}
	if a, b := len(files[wide]), len(files[half]); b > a*6/10 {
		t.Errorf("files of %d and %d bytes: want about half as many in bf16", a, b)
	}
	for g, o := range map[*rig]*rig{wide: half, half: wide} {
		r := g.runner(64)
		if err := r.Load(bytes.NewReader(files[o])); !errors.Is(err, state.ErrForeign) || !strings.Contains(err.Error(), "keys and values in "+o.dec.Shapes.KV.Stored().String()) {
			t.Errorf("loading a sequence of the other type: %v, want ErrForeign and the type", err)
		}
		st := g.state()
		if err := state.Move(st, snaps[o]); !errors.Is(err, state.ErrForeign) {
			t.Errorf("moving a state of the other type: %v, want ErrForeign", err)
		}
	}
}

// wideOnly is a device without pages of bf16.
type wideOnly struct{ backend.Device }

func (d wideOnly) Name() string { return "wide" }

func (d wideOnly) Info() backend.Info {
	i := d.Device.Info()
	i.BF16Pages = false
	return i
}

func TestKVUnsupported(t *testing.T) {
	g := newRigOn(t, wideOnly{ref.New()}, "qwen3-tied-fp32"+bf16KV, 0)
	if _, err := g.dec.NewState(g.pool); !errors.Is(err, backend.ErrUnsupported) || !strings.Contains(err.Error(), "wide has no pages of keys and values in BF16: keep them in F32") {
		t.Errorf("a sequence on a device without such pages: %v", err)
	}
}

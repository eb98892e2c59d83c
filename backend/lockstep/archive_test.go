package lockstep_test

import (
	"strings"
	"testing"

	"samebit/backend"
	"samebit/backend/backendtest"
	"samebit/backend/lockstep"
	"samebit/backend/ref"
	"samebit/tensor"
)

func TestArchive(t *testing.T) {
	dev := lockstep.New(ref.New(), openCPU(t))
	backendtest.RunCases(t, dev, some(backendtest.ArchiveCases()))
	backendtest.ArchiveErrors(t, dev)
	for _, c := range dev.Counts() {
		if c.Op == "ArchiveScan" && c.Values > 0 {
			return
		}
	}
	t.Error("no archive was compared")
}

// wrongScan is a device whose archives go wrong in the last value.
type wrongScan struct{ backend.Device }

type wrongStream struct {
	backend.Stream
	backend.Archive
}

func (d wrongScan) NewStream() (backend.Stream, error) {
	s, err := d.Device.NewStream()
	if err != nil {
		return nil, err
	}
	return wrongStream{s, s.(backend.Archive)}, nil
}

func (s wrongStream) ArchiveScan(dst, q tensor.Tensor, p backend.Plan, layer int, w *backend.ArchiveParams) {
	s.Archive.ArchiveScan(dst, q, p, layer, w)
	for _, g := range p.Segs() {
		v, _ := g.Archive.Out.Den.Index(layer).F32()
		v[len(v)-1] += 1
	}
}

// A wrong state is found when it is written, not when it is read.
func TestArchiveStateIsCompared(t *testing.T) {
	dev := lockstep.New(ref.New(), wrongScan{ref.New()})
	s, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	mem := func(dim ...int) tensor.Tensor {
		n := 4
		for _, d := range dim {
			n *= d
		}
		b, err := dev.Alloc(n)
		if err != nil {
			t.Fatal(err)
		}
		x, err := tensor.New(b, 0, tensor.F32, dim...)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	a := &backend.ArchiveSeg{Window: []tensor.Tensor{mem(2, 1, backend.Page, 4)}}
	a.In.Num, a.Out.Num, a.In.Den, a.Out.Den = mem(1, 1, 2, 4), mem(1, 1, 2, 4), mem(1, 1, 2), mem(1, 1, 2)
	p := s.Plan([]backend.Seg{{Rows: 3, Archive: a}})
	arch := s.(backend.Archive)
	w := &backend.ArchiveParams{WindowParams: backend.WindowParams{Scale: 1, Window: 2}, Codes: mem(1, 2, 4), Mix: mem(1, 2, 1), Decay: []float32{0.5}, Gain: []float32{0.5}}
	arch.PutWindow(p, 0, mem(3, 1, 4), mem(3, 1, 4), tensor.Tensor{})
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	arch.ArchiveScan(mem(3, 1, 4), mem(3, 1, 4), p, 0, w)
	if err := s.Sync(); err == nil || !strings.Contains(err.Error(), "part 1 of the archive of segment 0 differs") {
		t.Errorf("the pair says %v", err)
	}
}

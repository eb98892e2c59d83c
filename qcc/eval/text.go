package eval

import (
	"context"
	"math"

	"samebit/nn"
	"samebit/state"
)

// Fidelity is how near a memory comes to the full cache on a text: means over its
// rows but the first eighth, which every memory holds in part.
type Fidelity struct {
	Rows   int     `json:"rows"`
	Loss   float64 `json:"loss"`       // per token; its exponential is the perplexity
	Cosine float64 `json:"cosine"`     // of the logits
	Top1   float64 `json:"top1"`       // share of equal first choices
	KL     float64 `json:"divergence"` // of the full cache's distribution from the memory's, nats
}

// student is a memory that reads a text.
type student struct {
	*job
	f Fidelity
	k *nn.Runner
}

// text reads a piece of held-out text with all memories at once beside the full
// cache.
func (r *run) text(ctx context.Context, index int) error {
	n := r.cfg.TextRows
	ids := r.cfg.Text[index*n : (index+1)*n]
	in := state.Tokens(ids[:n-1])
	left, err := r.lacking(cell{Text, n, 0}, index)
	if err != nil || len(left) == 0 {
		return err
	}
	var students []*student
	defer func() {
		for _, s := range students {
			s.k.Close()
		}
	}()
	for _, j := range left {
		k, err := j.dec.NewRunner(r.s, r.m.Pool, nn.RunnerConfig{})
		if err != nil {
			return err
		}
		students = append(students, &student{job: j, k: k})
	}
	teacher, err := r.m.Decoder.NewRunner(r.s, r.m.Pool, nn.RunnerConfig{})
	if err != nil {
		return err
	}
	defer teacher.Close()
	const piece = 64
	want := make([]float32, piece*r.m.Decoder.Vocab)
	for at := 0; at < len(in); at += piece {
		rows := in[at:min(at+piece, len(in))]
		if err := teacher.AppendAll(ctx, rows, func(i int, l []float32) { copy(want[i*len(l):], l) }); err != nil {
			return err
		}
		for _, s := range students {
			err := s.k.AppendAll(ctx, rows, func(i int, l []float32) {
				if at+i >= n/8 {
					s.f.add(want[i*len(l):(i+1)*len(l)], l, int(ids[at+i+1]))
				}
			})
			if err != nil {
				return s.failed(err)
			}
		}
	}
	for _, s := range students {
		bytes, err := stateBytes(s.k.State())
		if err != nil {
			return err
		}
		s.f.mean()
		s.Bytes, s.Tokens, s.Result.Fidelity = s.bytes(bytes, len(in)), n, &s.f
		if err := r.emit(s.Result); err != nil {
			return err
		}
	}
	return nil
}

// add counts a row: logits y of the full cache, s of the memory, and the next token.
func (f *Fidelity) add(y, s []float32, next int) {
	ly, ls := logSum(y), logSum(s)
	var ys, yy, ss, kl float64
	for i := range y {
		a, b := float64(y[i]), float64(s[i])
		ys, yy, ss = ys+a*b, yy+a*a, ss+b*b
		kl += math.Exp(a-ly) * ((a - ly) - (b - ls))
	}
	f.Rows++
	f.Loss += ls - float64(s[next])
	f.Cosine += ys / math.Max(math.Sqrt(yy*ss), 1e-12)
	f.KL += kl
	if best(y) == best(s) {
		f.Top1++
	}
}

func (f *Fidelity) mean() {
	n := float64(max(1, f.Rows))
	f.Loss, f.Cosine, f.KL, f.Top1 = f.Loss/n, f.Cosine/n, f.KL/n, f.Top1/n
}

func logSum(v []float32) float64 {
	top := float64(v[best(v)])
	sum := 0.0
	for _, x := range v {
		sum += math.Exp(float64(x) - top)
	}
	return top + math.Log(sum)
}

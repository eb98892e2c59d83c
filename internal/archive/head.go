package archive

// Landmarks are kinds of slots that keep one event per code (qcc: landmark modes).
const (
	NoLandmarks = iota
	Persistent
	Prefix
	PrefixPair
)

// Options are what all heads of a layer share.
type Options[F Float] struct {
	Math         *Math[F]
	M, S, D, R   int // codes, scales, width, correction rank
	Decay, Gain  []F // [S]: r and r^window
	Scale        F   // 1/√D
	Active       int // codes of a sparse read or lazy write; 0 means all
	Lazy         bool
	PerCode      bool // a division per code and scale instead of one
	SparsePer    bool // PerCode, of sparse reads
	Features     bool
	Gate         bool // whether Threshold holds
	Threshold    F
	Landmarks    int
	LandmarkTemp F
}

// Head is one head of one sequence: its parameters and its state.
type Head[F Float] struct {
	*Options[F]
	Codes     []F // [M, D]
	Mix       []F // [M, S]
	CorrV     []F // [D, R]
	CorrU     []F // [R, D]
	CorrScale []F // [R, S]
	LandMix   F

	Num       []F // [M, S, D]
	Den       []F // [M, S]
	Last      []F // [M], lazy: number of events before the slot's last write and that one
	LandKey   []F // [M, D]
	LandValue []F // [M, D]
	LandScore []F // [M]
}

// Init gives the landmark scores their first value; everything else starts at +0.
func (h *Head[F]) Init() {
	for m := range h.LandScore {
		h.LandScore[m] = negInf[F]()
	}
}

func clip[F Float](x F) F { return less(greater(x, -20), 10) }

// scores writes DOT(x, c_m)·scale.
func (h *Head[F]) scores(x []F) []F {
	l := make([]F, h.M)
	for m := range l {
		l[m] = F(h.Math.Dot(x, h.Codes[m*h.D:(m+1)*h.D]) * h.Scale)
	}
	return l
}

// exponents are the scores, in features less a term of |x|².
func (h *Head[F]) exponents(l, x []F) []F {
	y := append([]F(nil), l...)
	if !h.Features {
		return y
	}
	norm := F(h.Math.SumSquares(x) * (h.Scale / 2))
	for m := range y {
		y[m] -= norm
	}
	return y
}

// weights are exp(clip(·)) of the exponents.
func (h *Head[F]) weights(l, x []F) []F {
	w := h.exponents(l, x)
	for m := range w {
		w[m] = h.Math.Exp(clip(w[m]))
	}
	return w
}

// Select lists the n largest values, ascending by index; the lower index wins ties
// and NaN comes last.
func Select[F Float](l []F, n int) []int {
	in := make([]bool, len(l))
	for range min(n, len(l)) {
		best := -1
		for m := range l {
			if !in[m] && (best < 0 || l[m] > l[best] || (l[best] != l[best] && l[m] == l[m])) {
				best = m
			}
		}
		in[best] = true
	}
	var s []int
	for m := range in {
		if in[m] {
			s = append(s, m)
		}
	}
	return s
}

func (h *Head[F]) all() []int {
	s := make([]int, h.M)
	for m := range s {
		s[m] = m
	}
	return s
}

// Write adds event number e, counted from 0.
func (h *Head[F]) Write(e int, k, v []F) {
	l := h.scores(k)
	h.landmark(e, l, k, v)
	w := h.weights(l, k)
	codes := h.all()
	if h.Lazy {
		codes = Select(l, h.Active)
	}
	for _, m := range codes {
		shut := h.Gate && l[m] < h.Threshold
		if shut && h.Lazy {
			continue
		}
		if shut {
			w[m] = 0
		}
		for s := range h.S {
			r := h.Decay[s]
			if h.Lazy {
				r = Power(r, e+1-int(h.Last[m]))
			}
			i := m*h.S + s
			add := F(w[m] * h.Gain[s])
			h.Den[i] = F(h.Den[i]*r) + add
			num := h.Num[i*h.D : (i+1)*h.D]
			for d := range num {
				num[d] = h.Math.FMA(add, v[d], F(num[d]*r))
			}
		}
		if h.Lazy {
			h.Last[m] = F(e + 1)
		}
	}
}

func (h *Head[F]) landmark(e int, l, k, v []F) {
	put := func(m int, score F) {
		copy(h.LandKey[m*h.D:(m+1)*h.D], k)
		copy(h.LandValue[m*h.D:(m+1)*h.D], v)
		h.LandScore[m] = score
	}
	switch h.Landmarks {
	case Persistent:
		for m := range l {
			if l[m] > h.LandScore[m] && !(h.Gate && l[m] < h.Threshold) {
				put(m, l[m])
			}
		}
	case Prefix, PrefixPair:
		if e >= h.M {
			return
		}
		top := negInf[F]()
		for m := range l {
			top = greater(top, l[m])
		}
		put(e, top)
		if h.Landmarks == PrefixPair && e > 0 {
			copy(h.LandValue[(e-1)*h.D:e*h.D], v)
		}
	}
}

// Latent is the query's part of the low-rank correction.
func (h *Head[F]) Latent(q []F) []F {
	z := make([]F, h.R)
	h.Math.dotRows(z, q, h.CorrV, h.R)
	return z
}

// Correct writes q plus its correction; dst may be q.
func (h *Head[F]) Correct(dst, q []F) {
	u := make([]F, h.D)
	h.Math.dotRows(u, h.Latent(q), h.CorrU, h.D)
	for d := range dst {
		dst[d] = q[d] + u[d]
	}
}

// Read writes the response to q after so many events.
func (h *Head[F]) Read(dst, q []F, events int) {
	z := h.Latent(q)
	l := h.scores(q)
	codes, perCode := h.all(), h.PerCode
	if h.Active > 0 && h.Active < h.M {
		codes, perCode = Select(l, h.Active), h.SparsePer
	}
	phi := make([]F, len(codes))
	for i, m := range codes {
		phi[i] = l[m]
	}
	if perCode {
		h.Math.Softmax(phi, phi)
	} else {
		phi = h.weights(phi, q)
	}

	u, den := make([]F, len(codes)*h.D), make([]F, len(codes))
	for i, m := range codes {
		h.code(u[i*h.D:(i+1)*h.D], &den[i], m, z, events, perCode)
	}
	h.Math.dotRows(dst, phi, u, h.D)
	if !perCode {
		r := 1 / greater(h.Math.Dot(phi, den), 1e-8)
		for d := range dst {
			dst[d] = F(dst[d] * r)
		}
	}
	if h.R > 0 {
		c := make([]F, h.D)
		h.Math.dotRows(c, z, h.CorrU, h.D)
		for d := range dst {
			dst[d] += c[d]
		}
	}
	h.recall(dst, q)
}

// code mixes the scales of one code.
func (h *Head[F]) code(u []F, den *F, m int, z []F, events int, perCode bool) {
	mix := make([]F, h.S)
	copy(mix, h.Mix[m*h.S:(m+1)*h.S])
	if h.R > 0 {
		delta := make([]F, h.S)
		h.Math.dotRows(delta, z, h.CorrScale, h.S)
		for s := range mix {
			mix[s] += delta[s]
		}
	}
	h.Math.Softmax(mix, mix)
	n := append([]F(nil), h.Num[m*h.S*h.D:(m+1)*h.S*h.D]...)
	d := append([]F(nil), h.Den[m*h.S:(m+1)*h.S]...)
	for s := range h.S {
		row := n[s*h.D : (s+1)*h.D]
		if h.Lazy {
			r := Power(h.Decay[s], events-int(h.Last[m]))
			d[s] *= r
			for i := range row {
				row[i] *= r
			}
		}
		if perCode {
			r := 1 / greater(d[s], 1e-8)
			for i := range row {
				row[i] *= r
			}
		}
	}
	h.Math.dotRows(u, mix, n, h.D)
	*den = h.Math.Dot(mix, d)
}

// recall blends the landmarks into a response.
func (h *Head[F]) recall(dst, q []F) {
	if h.Landmarks == NoLandmarks {
		return
	}
	p := make([]F, h.M)
	filled := false
	for m := range p {
		p[m] = -1e9
		if h.LandScore[m] != negInf[F]() {
			filled = true
			p[m] = F(F(h.Math.Dot(q, h.LandKey[m*h.D:(m+1)*h.D])*h.Scale) * h.LandmarkTemp)
		}
	}
	if !filled {
		return
	}
	h.Math.Softmax(p, p)
	y := make([]F, h.D)
	h.Math.dotRows(y, p, h.LandValue, h.D)
	a := F(1)
	if h.Landmarks == Persistent {
		a = h.Math.Sigmoid(h.LandMix)
	}
	h.Math.Blend(dst, a, y, dst)
}

// Agreement is what norm gating multiplies the remote weight by: how much the
// lengths of the two responses agree.
func (m *Math[F]) Agreement(local, remote []F) F {
	n := F(len(local))
	l, a := m.Sqrt(m.SumSquares(local)/n), m.Sqrt(m.SumSquares(remote)/n)
	return less(greater(less(l/greater(a, 1e-6), a/greater(l, 1e-6)), 0), 1)
}

// Mix joins the local and the remote response of a head. The gate is the weight of
// the local one; promote, the weight of a confident exact hit, lowers it. With
// constant the remote weight is given instead of a gate.
func (m *Math[F]) Mix(dst, local, remote []F, gate, promote F, constant, norm bool) {
	if constant && promote == 0 && !norm {
		m.Blend(dst, gate, remote, local)
		return
	}
	if constant {
		gate = 1 - gate
	}
	gate = F(gate * (1 - promote))
	if norm {
		m.Blend(dst, F(1-gate)*m.Agreement(local, remote), remote, local)
		return
	}
	m.Blend(dst, gate, local, remote)
}

// MassMerge joins two parts of one softmax by their log masses.
func (m *Math[F]) MassMerge(dst, local, exact []F, massLocal, massExact F) {
	w := F(0)
	if massExact != negInf[F]() {
		w = m.Sigmoid(massExact - massLocal)
	}
	m.Blend(dst, w, exact, local)
}

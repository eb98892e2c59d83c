package archive

const rowBlock = 128

// Grads are where the gradients of a head's parameters go; nil ones are left out.
type Grads[F Float] struct {
	Codes, Mix, CorrV, CorrU, CorrScale []F // as in Head
	LandMix                             []F // one value
}

// Sequence is a head over a whole sequence, of which Backward adds the gradients
// (docs/numerics.md 16.6).
type Sequence[F Float] struct {
	*Head[F] // parameters, and a state of zeros that is used up
	To       Grads[F]

	Rows, Window, Sinks int
	Group               int // query heads

	Query, DY, DQuery                func(row, head int) []F
	Address, Value, DAddress, DValue func(row int) []F
}

// readGrad is what a read leaves for the gradients of the state and the parameters.
// Values of code m and scale s are at m·S + s.
type readGrad[F Float] struct {
	resp     []F // gradient of the response [D]
	num, den []F // factors of resp and of 1 in the gradients of the sums [M, S]
	score    []F // gradient of DOT(q, c) [M]
	logit    []F // gradient of the scales' logits [M, S]
	z, dz    []F // [R]
	scale    []F // gradient of the correction of the logits [S]
	land     F   // gradient of LandMix
}

// eventGrad is what the write of an event leaves.
type eventGrad[F Float] struct {
	weight []F // [M]
	slope  []F // of the weight by the score [M]
	hard   []F // the part of it that goes through the exponential [M]
	score  []F // gradient of DOT(k, c) [M]
}

func (s *Sequence[F]) from() int { return min(s.Window+s.Sinks, s.Rows) }

// Backward runs over the rows once more, then backwards.
func (s *Sequence[F]) Backward() {
	from := s.from()
	reads, events := make([][]readGrad[F], s.Rows), make([]eventGrad[F], s.Rows)
	for i := from; i < s.Rows; i++ {
		k := s.Address(i - s.Window)
		s.Write(i-from, k, s.Value(i-s.Window))
		events[i] = s.slopes(k)
		for h := range s.Group {
			reads[i] = append(reads[i], s.readBack(i, h))
		}
	}
	num, den := make([]F, s.M*s.S*s.D), make([]F, s.M*s.S)
	for i := s.Rows - 1; i >= from; i-- {
		s.writeBack(i, num, den, reads[i], &events[i])
	}
	s.parameters(reads, events)
}

// inside reports whether clip leaves x alone.
func inside[F Float](x F) bool { return !(x < -20) && !(x > 10) }

// slopes are the derivatives of the weights of an event. Behind a gate that of a
// smooth gate is added to that of the hard one.
func (h *Head[F]) slopes(k []F) eventGrad[F] {
	l := h.scores(k)
	x := h.exponents(l, k)
	e := eventGrad[F]{weight: make([]F, h.M), slope: make([]F, h.M), hard: make([]F, h.M), score: make([]F, h.M)}
	for m := range l {
		w := h.Math.Exp(clip(x[m]))
		if !(h.Gate && l[m] < h.Threshold) {
			e.weight[m] = w
			if inside(x[m]) {
				e.hard[m] = w
			}
		}
		e.slope[m] = e.hard[m]
		if h.Gate {
			g := h.Math.Sigmoid((l[m] - h.Threshold) * 10)
			e.slope[m] += F(F(w*F(g*(1-g))) * 10)
		}
	}
	return e
}

// readBack adds the gradient of the query of a row's head.
func (s *Sequence[F]) readBack(i, head int) readGrad[F] {
	m, q, dq := s.Math, s.Query(i, head), s.DQuery(i, head)
	r := readGrad[F]{resp: append([]F(nil), s.DY(i, head)...), num: make([]F, s.M*s.S), den: make([]F, s.M*s.S), logit: make([]F, s.M*s.S), score: make([]F, s.M),
		z: s.Latent(q), dz: make([]F, s.R), scale: make([]F, s.S)}
	land, y, a := s.recallBack(dq, q, r.resp)

	l := s.scores(q)
	x := s.exponents(l, q)
	mix := s.mix(r.z)
	phi, p := make([]F, s.M), make([]F, s.M)
	if s.PerCode {
		m.Softmax(phi, l)
	} else {
		copy(phi, s.weights(l, q))
	}
	mixed := func(code int, v []F) F { return m.Dot(mix[code*s.S:(code+1)*s.S], v[code*s.S:(code+1)*s.S]) }
	b, t := make([]F, s.M*s.S), make([]F, s.M*s.S)
	for c := range b {
		b[c] = m.Dot(r.resp, s.Num[c*s.D:(c+1)*s.D])
	}
	var value F // DOT(resp, response before its correction)
	if s.PerCode {
		for c := range b {
			inv, w := 1/greater(s.Den[c], 1e-8), F(mix[c]*phi[c/s.S])
			t[c] = F(b[c] * inv)
			r.num[c] = F(w * inv)
			if !(s.Den[c] < 1e-8) {
				r.den[c] = -F(r.num[c] * t[c])
			}
		}
	} else {
		f := make([]F, s.M)
		for c := range f {
			f[c], p[c] = mixed(c, s.Den), mixed(c, b)
		}
		mass := m.Dot(phi, f)
		inv := 1 / greater(mass, 1e-8)
		value = F(m.Dot(phi, p) * inv)
		var h F
		if !(mass < 1e-8) {
			h = -F(value * inv)
		}
		for c := range b {
			w := F(mix[c] * phi[c/s.S])
			t[c] = m.FMA(b[c], inv, F(h*s.Den[c]))
			r.num[c], r.den[c] = F(w*inv), F(w*h)
		}
	}
	for c := range p {
		p[c] = mixed(c, t)
	}
	for c := range t {
		r.logit[c] = F((t[c] - p[c/s.S]) * F(mix[c]*phi[c/s.S]))
	}
	if s.PerCode {
		value = m.Dot(phi, p)
	}
	for c := range p {
		switch {
		case s.PerCode:
			r.score[c] = F(F((p[c]-value)*phi[c]) * s.Scale)
		case inside(x[c]):
			r.score[c] = F(F(p[c]*phi[c]) * s.Scale)
		}
	}
	s.query(dq, q, r.score, r.score, s.Features && !s.PerCode)
	value += s.correctionBack(dq, &r)
	if land {
		r.land = F(F((1-a)*y)-value) * a
	}
	return r
}

// mix are the weights of the scales of all codes for a query's latent values.
func (h *Head[F]) mix(z []F) []F {
	delta, mix := make([]F, h.S), append([]F(nil), h.Mix...)
	if h.R > 0 {
		h.Math.dotRows(delta, z, h.CorrScale, h.S)
	}
	for m := range h.M {
		v := mix[m*h.S : (m+1)*h.S]
		for s := range v {
			if h.R > 0 {
				v[s] += delta[s]
			}
		}
		h.Math.Softmax(v, v)
	}
	return mix
}

// query adds to dx the gradient of x through the scores DOT(x, c_m) and, with
// features, through |x|² by the part power of it.
func (h *Head[F]) query(dx, x, score, power []F, features bool) {
	t := make([]F, h.D)
	h.Math.dotRows(t, score, h.Codes, h.D)
	var n F
	if features {
		n = -h.Math.Sum(power)
	}
	for d := range t {
		if features {
			t[d] = h.Math.FMA(n, x[d], t[d])
		}
		dx[d] += t[d]
	}
}

// correctionBack adds the gradient of the query through its latent values, and
// returns DOT(resp, correction of the response).
func (s *Sequence[F]) correctionBack(dq []F, r *readGrad[F]) F {
	if s.R == 0 {
		return 0
	}
	one := make([]F, s.M)
	for c := range one {
		one[c] = 1
	}
	s.Math.dotRows(r.scale, one, r.logit, s.S)
	u, t := make([]F, s.R), make([]F, s.D)
	for j := range u {
		u[j] = s.Math.Dot(r.resp, s.CorrU[j*s.D:(j+1)*s.D])
		r.dz[j] = u[j] + s.Math.Dot(r.scale, s.CorrScale[j*s.S:(j+1)*s.S])
	}
	for d := range t {
		t[d] = s.Math.Dot(r.dz, s.CorrV[d*s.R:(d+1)*s.R])
		dq[d] += t[d]
	}
	return s.Math.Dot(r.z, u)
}

// recallBack takes a blend with landmarks back: it makes of resp, the gradient of the
// result, that of the response, and adds that of the query. With landmarks whose
// weight a is a parameter it returns DOT(resp, recalled) as y.
func (s *Sequence[F]) recallBack(dq, q, resp []F) (land bool, y, a F) {
	if s.Landmarks == NoLandmarks {
		return false, 0, 0
	}
	m, p, filled := s.Math, make([]F, s.M), false
	for c := range p {
		p[c] = -1e9
		if s.LandScore[c] != negInf[F]() {
			filled = true
			p[c] = F(F(m.Dot(q, s.LandKey[c*s.D:(c+1)*s.D])*s.Scale) * s.LandmarkTemp)
		}
	}
	if !filled {
		return false, 0, 0
	}
	m.Softmax(p, p)
	if a = 1; s.Landmarks == Persistent {
		a = m.Sigmoid(s.LandMix)
	}
	v, t := make([]F, s.M), make([]F, s.D)
	m.dotRows(t, p, s.LandValue, s.D)
	y = m.Dot(resp, t)
	for c := range v {
		v[c] = m.Dot(resp, s.LandValue[c*s.D:(c+1)*s.D])
	}
	top := m.Dot(p, v)
	for c := range v {
		v[c] = F(F(F(F((v[c]-top)*p[c])*a)*s.LandmarkTemp) * s.Scale)
	}
	m.dotRows(t, v, s.LandKey, s.D)
	for d := range t {
		dq[d] += t[d]
		resp[d] *= 1 - a
	}
	return s.Landmarks == Persistent, y, a
}

// writeBack takes the event of a row back: num and den are the gradients of the
// sums after the row's event.
func (s *Sequence[F]) writeBack(i int, num, den []F, reads []readGrad[F], e *eventGrad[F]) {
	m, j := s.Math, i-s.Window
	k, v, dk, dv := s.Address(j), s.Value(j), s.DAddress(j), s.DValue(j)
	for c := range den {
		r := s.Decay[c%s.S]
		den[c] = F(den[c] * r)
		for d := range s.D {
			num[c*s.D+d] = F(num[c*s.D+d] * r)
		}
	}
	for h := range reads {
		r := &reads[h]
		for c := range den {
			den[c] += r.den[c]
			for d := range s.D {
				num[c*s.D+d] = m.FMA(r.num[c], r.resp[d], num[c*s.D+d])
			}
		}
	}
	// Sums over scales and codes take the codes of a scale side by side.
	add, rows := make([]F, 0, s.M*s.S), make([]F, 0, s.M*s.S*s.D)
	for sc := range s.S {
		for c := range s.M {
			add = append(add, F(e.weight[c]*s.Gain[sc]))
			rows = append(rows, num[(c*s.S+sc)*s.D:(c*s.S+sc+1)*s.D]...)
		}
	}
	t := make([]F, s.D)
	m.dotRows(t, add, rows, s.D)
	for d := range t {
		dv[d] += t[d]
	}
	power := make([]F, s.M)
	for c := range s.M {
		g := make([]F, s.S)
		for sc := range g {
			n := num[(c*s.S+sc)*s.D : (c*s.S+sc+1)*s.D]
			g[sc] = m.Dot(n, v) + den[c*s.S+sc]
		}
		dw := m.Dot(s.Gain, g)
		e.score[c] = F(F(dw*e.slope[c]) * s.Scale)
		power[c] = F(F(dw*e.hard[c]) * s.Scale)
	}
	s.query(dk, k, e.score, power, s.Features)
}

// parameters adds the sums over rows.
func (s *Sequence[F]) parameters(reads [][]readGrad[F], events []eventGrad[F]) {
	fma := func(acc, x, y []F) { // acc[i, j] = FMA(x[i], y[j], acc[i, j])
		for i := range x {
			for j := range y {
				acc[i*len(y)+j] = s.Math.FMA(x[i], y[j], acc[i*len(y)+j])
			}
		}
	}
	s.sum(s.To.Codes, func(acc []F, i int) {
		for h := range reads[i] {
			fma(acc, reads[i][h].score, s.Query(i, h))
		}
		fma(acc, events[i].score, s.Address(i-s.Window))
	})
	heads := func(dst []F, f func(acc []F, r *readGrad[F], q []F)) {
		s.sum(dst, func(acc []F, i int) {
			for h := range reads[i] {
				f(acc, &reads[i][h], s.Query(i, h))
			}
		})
	}
	heads(s.To.Mix, func(acc []F, r *readGrad[F], _ []F) {
		for c := range acc {
			acc[c] += r.logit[c]
		}
	})
	heads(s.To.CorrV, func(acc []F, r *readGrad[F], q []F) { fma(acc, q, r.dz) })
	heads(s.To.CorrU, func(acc []F, r *readGrad[F], _ []F) { fma(acc, r.z, r.resp) })
	heads(s.To.CorrScale, func(acc []F, r *readGrad[F], _ []F) { fma(acc, r.z, r.scale) })
	heads(s.To.LandMix, func(acc []F, r *readGrad[F], _ []F) { acc[0] += r.land })
}

// sum adds chains over the rows of each block to dst.
func (s *Sequence[F]) sum(dst []F, row func(acc []F, i int)) {
	if dst == nil {
		return
	}
	for b := 0; b < s.Rows; b += rowBlock {
		acc := make([]F, len(dst))
		for i := max(b, s.from()); i < min(b+rowBlock, s.Rows); i++ {
			row(acc, i)
		}
		for c := range dst {
			dst[c] += acc[c]
		}
	}
}

// MixBack is the gradient of Mix without a promotion; it returns that of the gate's
// logit.
func (m *Math[F]) MixBack(dlocal, dremote, dy, local, remote []F, gate F, constant, norm bool) F {
	spread := func(a F) { // of a blend with weight a of remote
		for d := range dy {
			dlocal[d] += F(dy[d] * (1 - a))
			dremote[d] += F(dy[d] * a)
		}
	}
	if constant && !norm {
		spread(gate)
		return 0
	}
	if constant {
		gate = 1 - gate
	}
	diff, slope := make([]F, len(dy)), F(gate*(1-gate))
	if !norm {
		for d := range dy {
			diff[d] = local[d] - remote[d]
			dlocal[d] += F(dy[d] * gate)
			dremote[d] += F(dy[d] * (1 - gate))
		}
		return F(m.Dot(dy, diff) * slope)
	}
	agree := m.Agreement(local, remote)
	spread(F((1 - gate) * agree))
	for d := range dy {
		diff[d] = remote[d] - local[d]
	}
	dw := m.Dot(dy, diff)
	m.agreementBack(dlocal, dremote, local, remote, F(F(dw*(1-gate))*agree))
	return -F(F(dw*agree) * slope)
}

// agreementBack adds the gradient of the agreement of two lengths, given times it.
func (m *Math[F]) agreementBack(dlocal, dremote, local, remote []F, g F) {
	n := F(len(local))
	sl, sr := m.SumSquares(local), m.SumSquares(remote)
	l, a := m.Sqrt(sl/n), m.Sqrt(sr/n)
	add := func(dx, x []F, c F) {
		for d := range x {
			dx[d] += F(c * x[d])
		}
	}
	if !(l/greater(a, 1e-6) <= a/greater(l, 1e-6)) {
		dlocal, dremote, local, remote, sl, sr, a = dremote, dlocal, remote, local, sr, sl, l
	}
	if sl > 0 {
		add(dlocal, local, g/sl)
	}
	if !(a < 1e-6) {
		add(dremote, remote, -(g / sr))
	}
}

// CorrectBack adds to dq the gradient of Correct, and to the chains dv and du, which
// may be nil.
func (h *Head[F]) CorrectBack(dq, dv, du, dy, q []F) {
	z, dz := h.Latent(q), make([]F, h.R)
	for j := range dz {
		dz[j] = h.Math.Dot(dy, h.CorrU[j*h.D:(j+1)*h.D])
		for d := range dy {
			if du != nil {
				du[j*h.D+d] = h.Math.FMA(z[j], dy[d], du[j*h.D+d])
			}
		}
	}
	for d := range dq {
		dq[d] += dy[d]
		dq[d] += h.Math.Dot(dz, h.CorrV[d*h.R:(d+1)*h.R])
		for j := range dz {
			if dv != nil {
				dv[d*h.R+j] = h.Math.FMA(q[d], dz[j], dv[d*h.R+j])
			}
		}
	}
}

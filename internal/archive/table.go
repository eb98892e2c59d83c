package archive

// TableOptions are what the exact tiers of a layer's heads share.
type TableOptions[F Float] struct {
	Math                 *Math[F]
	Sets, Ways, Probe, D int
	FIFO, Hard           bool
	Admission, Diversity F // weights of score and diversity
	Recency              F // weight of age
	Temperature          F // of soft reads
}

// Table is the exact tier of one head of one sequence: sets × ways slots.
type Table[F Float] struct {
	*TableOptions[F]
	SetCodes []F // [Sets, D], unless every set is probed

	Key, Value []F // [slots, D]
	Score, Age []F // [slots], score -Inf: empty
	Cursor     *F  // next slot of a FIFO
}

// Init empties the slots.
func (t *Table[F]) Init() {
	for i := range t.Score {
		t.Score[i] = negInf[F]()
	}
}

func (t *Table[F]) slots() int        { return t.Sets * t.Ways }
func (t *Table[F]) key(j int) []F     { return t.Key[j*t.D : (j+1)*t.D] }
func (t *Table[F]) value(j int) []F   { return t.Value[j*t.D : (j+1)*t.D] }
func (t *Table[F]) filled(j int) bool { return t.Score[j] != negInf[F]() }

// candidates lists the slots of the best sets for x.
func (t *Table[F]) candidates(x []F, sets int) []int {
	chosen := make([]int, t.Sets)
	for i := range chosen {
		chosen[i] = i
	}
	if t.Probe < t.Sets {
		c := make([]F, t.Sets)
		for i := range c {
			c[i] = t.Math.Cosine(x, t.SetCodes[i*t.D:(i+1)*t.D])
		}
		chosen = Select(c, sets)
	}
	var s []int
	for _, i := range chosen {
		for w := range t.Ways {
			s = append(s, i*t.Ways+w)
		}
	}
	return s
}

// Write offers an event that was admitted; step counts the events up to it, this one
// included, whether they were admitted or not.
func (t *Table[F]) Write(k, v []F, score, step F) {
	put := func(j int, s F) {
		copy(t.key(j), k)
		copy(t.value(j), v)
		t.Score[j], t.Age[j] = s, step
	}
	if t.FIFO {
		j := int(*t.Cursor)
		put(j, score)
		*t.Cursor = F((j + 1) % t.slots())
		return
	}
	cand := t.candidates(k, 1)
	near, empty := negInf[F](), -1
	for _, j := range cand {
		if t.filled(j) {
			near = greater(near, t.Math.Cosine(k, t.key(j)))
		} else if empty < 0 {
			empty = j
		}
	}
	div := F(2)
	if near != negInf[F]() {
		div = 1 - near
	}
	s := F(t.Admission*score) + F(t.Diversity*div)
	if empty >= 0 {
		put(empty, s)
		return
	}
	weakest, low := -1, F(0)
	for _, j := range cand {
		if x := t.Score[j] - t.Recency/(1+(step-t.Age[j])); weakest < 0 || x < low {
			weakest, low = j, x
		}
	}
	if s > low {
		put(weakest, s)
	}
}

// Read writes the nearest value, or the mean by nearness, and returns the largest
// cosine; -1 and +0 if there is nothing.
func (t *Table[F]) Read(dst, q []F) F {
	clear(dst)
	best, conf := -1, F(0)
	var held []int
	var c []F
	for _, j := range t.candidates(q, t.Probe) {
		if !t.filled(j) {
			continue
		}
		x := t.Math.Cosine(q, t.key(j))
		if best < 0 || x > conf {
			best, conf = j, x
		}
		held, c = append(held, j), append(c, F(t.Temperature*x))
	}
	if best < 0 {
		return -1
	}
	if t.Hard {
		copy(dst, t.value(best))
		return conf
	}
	t.Math.Softmax(c, c)
	v := make([]F, 0, len(held)*t.D)
	for _, j := range held {
		v = append(v, t.value(j)...)
	}
	t.Math.dotRows(dst, c, v, t.D)
	return conf
}

// Attend writes softmax attention over all slots and returns its log mass.
func (t *Table[F]) Attend(dst, q []F, scale F) F {
	return t.Math.Attend(dst, q, scale, t.slots(), t.filled, t.key, t.value)
}

// Admit is the admission predictor: key and value are the archive's.
func (m *Math[F]) Admit(k, v, admKey, admValue []F, bias F) F {
	unit := func(x []F) []F {
		n := 1 / greater(m.Norm(x), 1e-12)
		y := make([]F, len(x))
		for i := range x {
			y[i] = x[i] * n
		}
		return y
	}
	return m.Dot(unit(k), admKey) + m.Dot(unit(v), admValue) + bias
}

// Confidence is the weight of an exact response whose largest cosine is conf.
func (m *Math[F]) Confidence(conf, mix, threshold, temperature F) F {
	if conf <= -0.5 {
		return 0
	}
	return m.Sigmoid(mix + F(temperature*(conf-threshold)))
}

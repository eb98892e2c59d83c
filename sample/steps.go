package sample

import (
	"math"
	"slices"

	"samebit/internal/canon"
)

// firstSelection is how many candidates are sorted before it is known how many
// a step needs; a peaked row rarely needs more.
const firstSelection = 128

// filter does the steps in their order. Before the first step that cuts, the
// candidates are work[0..vocab); from then on they are the list cand, in the
// order they had when the list was formed.
func (s *Sampler) filter(history []int32) {
	for _, step := range s.cfg.Order {
		switch step {
		case StepPenalties:
			s.penalties(history)
		case StepTemperature:
			s.temperature()
		case StepTopK:
			s.topK(s.cfg.TopK)
		case StepTopP:
			if s.cfg.TopP != nil && *s.cfg.TopP < 1 {
				s.topP(*s.cfg.TopP)
			}
		case StepMinP:
			if s.cfg.MinP > 0 {
				s.minP(s.cfg.MinP)
			}
		}
	}
}

// penalties lowers the logits of ids in the last PenaltyLastN of the history:
// repetition first, then count·frequency + presence.
func (s *Sampler) penalties(history []int32) {
	c := &s.cfg
	if c.RepetitionPenalty == 1 && c.FrequencyPenalty == 0 && c.PresencePenalty == 0 {
		return
	}
	if n := c.PenaltyLastN; n >= 0 && len(history) > n {
		history = history[len(history)-n:]
	}
	if s.count == nil {
		s.count = make([]int32, s.vocab)
	}
	for _, id := range history {
		if id >= 0 && int(id) < s.vocab {
			s.count[id]++
		}
	}
	if s.list {
		for i := range s.cand {
			if n := s.count[s.cand[i].id]; n > 0 {
				s.cand[i].x = s.penalty(s.cand[i].x, n)
			}
		}
		slices.SortFunc(s.cand, before)
	}
	for _, id := range history {
		if id >= 0 && int(id) < s.vocab && s.count[id] > 0 {
			if !s.list {
				s.work[id] = s.penalty(s.work[id], s.count[id])
			}
			s.count[id] = 0
		}
	}
}

// penalty returns the lowered logit x of an id that occurs n times. It stays in
// the float32 range, whatever the factors are, unless x is -Inf (banned).
func (s *Sampler) penalty(x float32, n int32) float32 {
	if x < -maxFloat {
		return x
	}
	if rho := s.cfg.RepetitionPenalty; x <= 0 {
		x *= rho
	} else {
		x /= rho
	}
	x = min(max(x, -maxFloat), maxFloat)
	x -= min(max(float32(float32(n)*s.cfg.FrequencyPenalty)+s.cfg.PresencePenalty, -maxFloat), maxFloat)
	return min(max(x, -maxFloat), maxFloat)
}

// temperature divides by T. Should the best quotient leave the float32 range,
// only the best candidate stays: that is the limit of the distribution.
func (s *Sampler) temperature() {
	t := s.cfg.Temperature
	if t == 1 {
		return
	}
	if s.list {
		if isInf(s.cand[0].x / t) {
			s.cand = s.cand[:1]
			return
		}
		for i := range s.cand {
			s.cand[i].x /= t
		}
		return
	}
	if isInf(slices.Max(s.work) / t) {
		s.selectTop(1)
		return
	}
	for i := range s.work {
		s.work[i] /= t
	}
}

// topK keeps the k best: exactly, or with the values equal to the k-th.
func (s *Sampler) topK(k int) {
	if k == 0 {
		return
	}
	ties := s.cfg.Rules == Transformers
	if s.list {
		n := min(k, len(s.cand))
		for ties && n < len(s.cand) && s.cand[n].x == s.cand[n-1].x {
			n++
		}
		s.cand = s.cand[:n]
		return
	}
	if k >= s.vocab {
		return
	}
	s.selectTop(k)
	if ties && len(s.cand) == k {
		last := s.cand[k-1]
		for id := int(last.id) + 1; id < s.vocab; id++ { // the selection took the smaller ids
			if s.work[id] == last.x {
				s.cand = append(s.cand, scored{x: last.x, id: int32(id)})
			}
		}
	}
}

// topP keeps a candidate if the probabilities before it sum to less than p,
// and always the first. (Transformers drops from the other end while the sum
// is at most 1-p; that is the same set.)
func (s *Sampler) topP(p float32) {
	s.softmax()
	if s.list {
		n, _ := s.reach(float64(p))
		s.cand = s.cand[:n]
		return
	}
	for k := firstSelection; ; k = s.grow(k) {
		s.selectTop(k)
		if n, ok := s.reach(float64(p)); ok || len(s.cand) < k || k >= s.vocab {
			s.cand = s.cand[:n]
			return
		}
	}
}

// reach returns how many candidates it takes for the sum to be at least p.
func (s *Sampler) reach(p float64) (int, bool) {
	sum := 0.0
	for i, c := range s.cand {
		if sum += float64(c.p); sum >= p {
			return i + 1, true
		}
	}
	return len(s.cand), false
}

// minP drops candidates below p times the best: on logits (x < max + ln p) or,
// with transformers' rules, on probabilities.
func (s *Sampler) minP(p float32) {
	if s.cfg.Rules == Transformers {
		s.softmax()
		if !s.list {
			least := p * slices.Max(s.prob)
			s.collect(func(i int) bool { return s.prob[i] >= least })
			return
		}
		least := p * s.cand[0].p
		s.cand = slices.DeleteFunc(s.cand, func(c scored) bool { return c.p < least })
		return
	}
	if !s.list {
		least := slices.Max(s.work) + canon.Log(p)
		s.collect(func(i int) bool { return s.work[i] >= least })
		return
	}
	least := s.cand[0].x + canon.Log(p)
	s.cand = slices.DeleteFunc(s.cand, func(c scored) bool { return c.x < least })
}

// collect makes the list of the ids that keep accepts.
func (s *Sampler) collect(keep func(i int) bool) {
	for i, x := range s.work {
		if keep(i) {
			s.cand = append(s.cand, scored{x: x, id: int32(i)})
		}
	}
	slices.SortFunc(s.cand, before)
	s.copyProbs()
	s.list = true
}

// selectTop makes the list of the k best of work in order, without -Inf.
//
// A heap of k with the worst on top is enough: ids come in rising order, so a
// later equal never displaces an earlier one.
func (s *Sampler) selectTop(k int) {
	h := s.cand[:0]
	if k >= s.vocab/8 { // most would pass through the heap: sorting costs no more
		for id, x := range s.work {
			if x >= -maxFloat {
				h = append(h, scored{x: x, id: int32(id)})
			}
		}
	} else {
		worst := float32(-maxFloat)
		for id, x := range s.work {
			switch {
			case len(h) < k:
				if x >= -maxFloat {
					h = append(h, scored{x: x, id: int32(id)})
					if up(h); len(h) == k {
						worst = h[0].x
					}
				}
			case x > worst:
				h[0] = scored{x: x, id: int32(id)}
				down(h)
				worst = h[0].x
			}
		}
	}
	slices.SortFunc(h, before)
	s.cand = h[:min(k, len(h))]
	s.copyProbs()
	s.list = true
}

// grow returns the next selection size after k turned out too small.
func (s *Sampler) grow(k int) int {
	if k *= 16; k >= s.vocab/8 {
		return s.vocab
	}
	return k
}

// copyProbs carries the probabilities of an uncut row into the list.
func (s *Sampler) copyProbs() {
	if s.prob == nil {
		return
	}
	for i := range s.cand {
		s.cand[i].p = s.prob[s.cand[i].id]
	}
}

const maxFloat = math.MaxFloat32

// up and down restore the heap order (the last in order on top) after an
// append and after a new top.
func up(h []scored) {
	for i := len(h) - 1; i > 0; {
		p := (i - 1) / 2
		if before(h[i], h[p]) <= 0 {
			return
		}
		h[i], h[p] = h[p], h[i]
		i = p
	}
}

func down(h []scored) {
	for i := 0; ; {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && before(h[c+1], h[c]) > 0 {
			c++
		}
		if before(h[c], h[i]) <= 0 {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}

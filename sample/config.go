// Package sample turns the logits of one position into the next token id.
//
// The arithmetic is that of docs/numerics.md: float32 with the exp and log of
// section 4 and the softmax of section 5, running sums of probabilities in
// float64, candidates in a total order (larger logit first, then smaller id),
// and one uniform number per draw that depends on (seed, sequence, step) only.
// So a seed gives the same ids on every processor, in every batch, and after
// resuming. Only the filtered distribution is meant to equal that of llama.cpp
// or transformers, not their random draws.
package sample

import (
	"fmt"
	"math"
)

// Rules says whose meaning the steps have where engines differ.
type Rules uint8

const (
	// LlamaCpp: penalties (over the last PenaltyLastN ids), top-k (exactly k),
	// top-p, min-p (on logits), temperature.
	LlamaCpp Rules = iota
	// Transformers: repetition penalty (over the whole history), temperature,
	// top-k (values equal to the k-th stay), top-p, min-p (on probabilities).
	// Frequency and presence penalties do not exist there.
	Transformers
)

// Step is one stage between the logits and the draw.
type Step uint8

const (
	StepPenalties Step = iota + 1
	StepTemperature
	StepTopK
	StepTopP
	StepMinP
)

func (s Step) String() string {
	names := [...]string{"?", "penalties", "temperature", "top-k", "top-p", "min-p"}
	if int(s) < len(names) && s > 0 {
		return names[s]
	}
	return fmt.Sprintf("Step(%d)", uint8(s))
}

// Config chooses how ids are drawn. The zero value is greedy: the largest
// logit, the smallest id among equals.
type Config struct {
	// Temperature divides the logits; 0 (or anything below 2⁻¹⁰⁰) means greedy.
	Temperature float32
	// TopK keeps the K best candidates; 0 means all.
	TopK int
	// TopP keeps the best candidates until their probabilities reach *TopP, at
	// least one. It is a pointer because 0 has a meaning of its own (only the
	// best stays): nil, like 1, means no filter. Write new(float32(0.95)).
	TopP *float32
	// MinP drops candidates less likely than MinP times the best; 0 means none.
	MinP float32
	// RepetitionPenalty ρ makes x of every id in the window x/ρ, or x·ρ where
	// x is negative; 0 means 1, which changes nothing.
	RepetitionPenalty float32
	// FrequencyPenalty is subtracted once per occurrence in the window,
	// PresencePenalty once if there is any.
	FrequencyPenalty, PresencePenalty float32
	// PenaltyLastN is the number of last ids of the history that the penalties
	// see; negative means all, 0 means 64 (Transformers: all).
	PenaltyLastN int
	// LogitBias is added before every other step; -Inf bans an id.
	LogitBias map[int32]float32
	// Seed selects the random numbers; 0 is a seed like any other.
	Seed uint64
	// Rules also give the order when Order is nil.
	Rules Rules
	// Order lists the steps to do, each at most once; steps left out are not
	// done. The draw comes last. Greedy needs no order: of the steps only the
	// penalties can move the best candidate.
	Order []Step
}

// Balanced returns the values llama.cpp runs with unless told otherwise:
// top-k 40, top-p 0.95, min-p 0.05, temperature 0.8, no penalties.
func Balanced() Config {
	return Config{Temperature: 0.8, TopK: 40, TopP: new(float32(0.95)), MinP: 0.05}
}

var (
	llamaOrder        = [...]Step{StepPenalties, StepTopK, StepTopP, StepMinP, StepTemperature}
	transformersOrder = [...]Step{StepPenalties, StepTemperature, StepTopK, StepTopP, StepMinP}
)

// greedyBelow is where a temperature counts as 0: quotients of ordinary logits
// would leave the float32 range and the best candidate's share is 1 anyway.
const greedyBelow = 0x1p-100

// resolved fills in the defaults of c after checking every value.
func (c Config) resolved(vocab int) (Config, error) {
	bad := func(name string, v any, want string) error {
		return fmt.Errorf("sample: new sampler: %s is %v: want %s", name, v, want)
	}
	if vocab <= 0 || vocab > math.MaxInt32 {
		return c, bad("vocabulary size", vocab, "1 to 2147483647")
	}
	if !(c.Temperature >= 0) || isInf(c.Temperature) {
		return c, bad("temperature", c.Temperature, "a finite number, 0 (greedy) or more")
	}
	if c.TopK < 0 {
		return c, bad("top-k", c.TopK, "1 or more, or 0 for no limit")
	}
	if c.TopP != nil && !(*c.TopP >= 0 && *c.TopP <= 1) {
		return c, bad("top-p", *c.TopP, "0 to 1 (1 means no filter)")
	}
	if !(c.MinP >= 0 && c.MinP <= 1) {
		return c, bad("min-p", c.MinP, "0 (no filter) to 1")
	}
	if !(c.RepetitionPenalty >= 0) || isInf(c.RepetitionPenalty) {
		return c, bad("repetition penalty", c.RepetitionPenalty, "a finite number above 0, or 0 for none")
	}
	if x := c.FrequencyPenalty; x != x || isInf(x) {
		return c, bad("frequency penalty", x, "a finite number")
	}
	if x := c.PresencePenalty; x != x || isInf(x) {
		return c, bad("presence penalty", x, "a finite number")
	}
	for id, b := range c.LogitBias {
		if id < 0 || int(id) >= vocab {
			return c, bad("a logit bias's id", id, fmt.Sprintf("0 to %d, the last id of the vocabulary", vocab-1))
		}
		if b != b || b > math.MaxFloat32 {
			return c, bad(fmt.Sprintf("the logit bias of id %d", id), b, "a finite number, or -Inf to ban it")
		}
	}
	switch c.Rules {
	case LlamaCpp:
		if c.Order == nil {
			c.Order = llamaOrder[:]
		}
		if c.PenaltyLastN == 0 {
			c.PenaltyLastN = 64
		}
	case Transformers:
		if c.FrequencyPenalty != 0 || c.PresencePenalty != 0 {
			return c, bad("frequency or presence penalty under transformers rules",
				[2]float32{c.FrequencyPenalty, c.PresencePenalty}, "0, or the llama.cpp rules")
		}
		if c.Order == nil {
			c.Order = transformersOrder[:]
		}
		if c.PenaltyLastN == 0 {
			c.PenaltyLastN = -1
		}
	default:
		return c, bad("rules", uint8(c.Rules), "LlamaCpp or Transformers")
	}
	var seen [StepMinP + 1]bool
	for _, s := range c.Order {
		if s < StepPenalties || s > StepMinP {
			return c, bad("an entry of the order", s, "penalties, temperature, top-k, top-p or min-p")
		}
		if seen[s] {
			return c, bad("a step named twice in the order", s, "every step at most once")
		}
		seen[s] = true
	}
	if c.RepetitionPenalty == 0 {
		c.RepetitionPenalty = 1
	}
	return c, nil
}

func isInf(x float32) bool { return x > math.MaxFloat32 || x < -math.MaxFloat32 }

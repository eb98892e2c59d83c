package rclc

import (
	"fmt"
	"os"

	"samebit/internal/canon"
)

// CheckReport says whether an agent, or what it would be bound to, can take part in
// transfers.
type CheckReport struct {
	OK       bool     `json:"ok"`    // no issues
	Scope    string   `json:"scope"` // "bound_agent"
	Device   string   `json:"backend"`
	Kernels  string   `json:"kernels"`  // in use, as backend.Info has them
	Numerics int      `json:"numerics"` // version of the contract of docs/numerics.md
	Issues   []string `json:"issues"`   // each names what is wrong and what to do
	Notes    []string `json:"notes"`    // what is worth knowing, and no issue
}

// CheckConfig says what else to look at.
type CheckConfig struct {
	// SnapshotDir, unless empty, is a folder that snapshots are to be saved in.
	SnapshotDir string
}

// Check looks at an agent without running its model or waiting for what runs.
func Check(a *Agent, cfg CheckConfig) CheckReport {
	m := a.model
	dev := m.Pool().Device().Info()
	r := CheckReport{Scope: "bound_agent", Device: dev.Name, Kernels: dev.Kernels, Numerics: canon.Version, Issues: []string{}, Notes: []string{}}
	issue := func(format string, args ...any) { r.Issues = append(r.Issues, fmt.Sprintf(format, args...)) }
	note := func(format string, args ...any) { r.Notes = append(r.Notes, fmt.Sprintf(format, args...)) }

	full := 0
	for _, f := range m.full {
		if f {
			full++
		}
	}
	if full == 0 {
		issue("none of the model's %d layers is full attention: positions cannot be scored; use a model with at least one, or a selector of your own that needs no scores", m.Info.Layers)
	}
	if a.history != nil && m.Chat == nil {
		issue("a history is bound and the model has no chat template: set Model.Chat, see NewChat")
	}
	if t := m.Tokenizer; t != nil && t.Size() > m.Info.Vocab {
		issue("the tokenizer has %d ids and the embedding %d rows: they belong to different models", t.Size(), m.Info.Vocab)
	}
	if c := m.Info.Context; c > 0 && a.limit > c {
		issue("the agent's context of %d positions is beyond the model's %d: bind it with at most that", a.limit, c)
	}
	if a.limit > 0 && a.maxNew >= a.limit {
		issue("%d positions kept free for answers leave nothing of a context of %d: lower MaxNewTokens or raise ContextLimit", a.maxNew, a.limit)
	}
	if d := cfg.SnapshotDir; d != "" {
		if err := writable(d); err != nil {
			issue("snapshots cannot be saved in %s: %v: name a folder that is there and can be written", d, err)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		issue("the agent is closed: bind another")
	}
	if a.pending != nil {
		note("inputs of %d rows are pending", len(a.pending.rows))
	}
	if n := len(a.queue); n > 0 {
		note("%d deliveries are queued", n)
	}
	if dev.Kernels == "generic" {
		note("the device computes without vector instructions, with a software fused multiply-add where the processor has none: equal bits, much slower")
	}
	if m.Tokenizer == nil {
		note("there is no tokenizer: only token ids can be used")
	}
	if a.own != nil && len(a.queue) == 0 && a.limit > 0 && a.own.Len() >= a.limit {
		note("the retained state fills the context of %d positions", a.limit)
	}
	r.OK = len(r.Issues) == 0
	return r
}

// writable makes and removes a file.
func writable(dir string) error {
	f, err := os.CreateTemp(dir, ".check-*")
	if err != nil {
		return err
	}
	f.Close()
	return os.Remove(f.Name())
}

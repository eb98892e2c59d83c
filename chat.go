package samebit

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"samebit/backend"
	"samebit/nn"
	"samebit/token"
	"samebit/token/jinja"
)

// Message is one turn of a conversation.
type Message = jinja.Message

// ChatConfig says how a conversation is rendered. The zero value has no system
// message of its own and leaves thinking to the model's template.
type ChatConfig struct {
	System   string // first message, if not empty
	Thinking *bool  // enable_thinking of templates that know it
	Tools    any    // list of JSON tool descriptions, shown to the model by its template; as a json.RawMessage it is guarded like messages
	Date     string // for templates that show one; the clock is never read
	Now      time.Time
}

// Chat is a conversation: messages, and a sequence that remembers their rows, so
// that a turn costs what is new in it. It belongs to one goroutine.
type Chat struct {
	Messages []Message

	m      *Model
	cfg    ChatConfig
	r      *nn.Runner
	s      backend.Stream
	closed bool
	done   func()
}

// NewChat begins a conversation. Close it before the model.
func (m *Model) NewChat(cfg ChatConfig) (*Chat, error) {
	done, err := m.use()
	if err != nil {
		return nil, err
	}
	r, s, err := m.NewRunner()
	if err != nil {
		done()
		return nil, err
	}
	c := &Chat{m: m, cfg: cfg, r: r, s: s, done: done}
	if cfg.System != "" {
		c.Messages = append(c.Messages, Message{Role: "system", Content: cfg.System})
	}
	return c, nil
}

// Close frees the conversation's memory.
func (c *Chat) Close() {
	if c.closed || c.r == nil {
		return
	}
	c.closed = true
	c.r.Close()
	c.s.Close()
	c.done()
}

// Prompt renders the messages with the model's own template, up to where the
// assistant's next turn begins.
func (c *Chat) Prompt() (string, error) { return c.m.RenderChat(c.Messages, c.cfg) }

// RenderChat renders messages with the model's own chat template (ChatML for a
// file without one), up to where the assistant's next turn begins.
func (m *Model) RenderChat(messages []Message, cfg ChatConfig) (string, error) {
	t := m.Tokenizer
	o := jinja.ChatOptions{AddGenerationPrompt: true, EnableThinking: cfg.Thinking, Tools: cfg.Tools, DateString: cfg.Date, Now: cfg.Now}
	if t.BOS != token.NoToken {
		o.BOS = string(t.TokenBytes(t.BOS))
	}
	if t.EOS != token.NoToken {
		o.EOS = string(t.TokenBytes(t.EOS))
	}
	text, err := jinja.RenderChat(m.template, messages, o)
	if err != nil {
		return "", fmt.Errorf("samebit: chat: %w", err)
	}
	return text, nil
}

// EncodeChat is RenderChat as tokens. What messages say is text: a message that
// spells a control token, such as the end of a turn, does not end the turn.
func (m *Model) EncodeChat(messages []Message, cfg ChatConfig) ([]int32, error) {
	guard := "\uFDD0" // no character; if somebody uses it all the same, another
	var all strings.Builder
	jinja.MapText(messages, func(text string) string { all.WriteString(text); return text })
	if tools, ok := cfg.Tools.(json.RawMessage); ok {
		jinja.MapStrings(tools, func(text string) string { all.WriteString(text); return text })
	}
	for r := '\uFDD1'; r <= '\uFDEF' && strings.Contains(all.String(), guard); r++ {
		guard = string(r)
	}
	if tools, ok := cfg.Tools.(json.RawMessage); ok {
		cfg.Tools = json.RawMessage(jinja.MapStrings(tools, func(text string) string { return m.Tokenizer.Guard(text, guard) }))
	}
	said := jinja.MapText(messages, func(text string) string { return m.Tokenizer.Guard(text, guard) })
	text, err := m.RenderChat(said, cfg)
	if err != nil {
		return nil, err
	}
	return m.Tokenizer.EncodeGuarded(nil, text, guard), nil
}

// Send adds a user's message and streams the answer, which becomes the next
// message. When the loop is left early or the context ends, what was said so far
// is kept; when nothing was said, the user's message is taken back.
func (c *Chat) Send(ctx context.Context, content string, g Gen) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		if c.closed || c.r == nil {
			yield(Token{}, fmt.Errorf("samebit: chat is closed"))
			return
		}
		c.Messages = append(c.Messages, Message{Role: "user", Content: content})
		prompt, err := c.m.EncodeChat(c.Messages, c.cfg)
		if err != nil {
			c.Messages = c.Messages[:len(c.Messages)-1]
			yield(Token{}, err)
			return
		}
		if g.Report == nil {
			g.Report = new(Report)
		}
		var answer []byte
		c.m.continueWith(ctx, c.r, prompt, g, func(t Token, err error) bool {
			answer = append(answer, t.Text...)
			return yield(t, err)
		})
		if ended := g.Report.Reason; len(answer) == 0 && (ended == "error" || ended == "cancelled") {
			c.Messages = slices.Delete(c.Messages, len(c.Messages)-1, len(c.Messages))
			return
		}
		c.Messages = append(c.Messages, Message{Role: "assistant", Content: string(answer)})
	}
}

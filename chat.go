package samebit

import (
	"bytes"
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
	eachText(messages, func(text string) string { all.WriteString(text); return text })
	if tools, ok := cfg.Tools.(json.RawMessage); ok {
		jsonStrings(tools, func(text string) string { all.WriteString(text); return text })
	}
	for r := '\uFDD1'; r <= '\uFDEF' && strings.Contains(all.String(), guard); r++ {
		guard = string(r)
	}
	if tools, ok := cfg.Tools.(json.RawMessage); ok {
		cfg.Tools = json.RawMessage(jsonStrings(tools, func(text string) string { return m.Tokenizer.Guard(text, guard) }))
	}
	said := eachText(messages, func(text string) string { return m.Tokenizer.Guard(text, guard) })
	text, err := m.RenderChat(said, cfg)
	if err != nil {
		return nil, err
	}
	return m.Tokenizer.EncodeGuarded(nil, text, guard), nil
}

// eachText returns messages with f applied to everything that somebody said: the
// roles, contents, names and the strings in the arguments of tool calls.
func eachText(messages []Message, f func(string) string) []Message {
	messages = slices.Clone(messages)
	for i := range messages {
		v := &messages[i]
		v.Role, v.Content, v.ReasoningContent = f(v.Role), f(v.Content), f(v.ReasoningContent)
		v.ToolCallID, v.Name = f(v.ToolCallID), f(v.Name)
		v.ToolCalls = slices.Clone(v.ToolCalls)
		for j := range v.ToolCalls {
			c := &v.ToolCalls[j]
			c.ID, c.Type, c.Function.Name = f(c.ID), f(c.Type), f(c.Function.Name)
			c.Function.Arguments = jsonStrings(c.Function.Arguments, f)
		}
	}
	return messages
}

// jsonStrings applies f to the strings, keys too, of a JSON text. What is no JSON
// stays as it is, for the renderer to refuse.
func jsonStrings(text []byte, f func(string) string) []byte {
	var out []byte
	for len(text) > 0 {
		open := bytes.IndexByte(text, '"')
		if open < 0 {
			break
		}
		end := open + 1
		for end < len(text) && text[end] != '"' {
			if text[end] == '\\' {
				end++
			}
			end++
		}
		var s string
		if end >= len(text) || json.Unmarshal(text[open:end+1], &s) != nil {
			break
		}
		out = append(out, text[:open]...)
		if g := f(s); g != s {
			q, _ := json.Marshal(g) // a string has a JSON form
			out = append(out, q...)
		} else {
			out = append(out, text[open:end+1]...)
		}
		text = text[end+1:]
	}
	return append(out, text...)
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

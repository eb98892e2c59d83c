package jinja

import (
	"encoding/json"
	"errors"
	"time"
)

// Message is one turn of a conversation in the form templates expect. Any
// value with the same JSON form will do in its place.
type Message struct {
	Role             string     `json:"role"` // system, user, assistant, tool
	Content          string     `json:"content"`
	ReasoningContent string     `json:"reasoning_content,omitempty"`
	ToolCalls        []ToolCall `json:"tool_calls,omitempty"`
	ToolCallID       string     `json:"tool_call_id,omitempty"`
	Name             string     `json:"name,omitempty"`
}

// ToolCall is a call the assistant made. Arguments is a JSON object; clients
// that send it as a string must have it decoded first, since most templates
// look inside.
type ToolCall struct {
	ID       string       `json:"id,omitempty"`
	Type     string       `json:"type,omitempty"`
	Function FunctionCall `json:"function"`
}

// FunctionCall names a tool and its arguments, a JSON object in the order given.
type FunctionCall struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

// ChatOptions are the variables a chat template sees besides the messages. The
// zero value renders the conversation alone.
type ChatOptions struct {
	// AddGenerationPrompt appends the beginning of an assistant's turn. It is
	// off by default, as in transformers; set it to ask for an answer.
	AddGenerationPrompt bool
	// EnableThinking is what Qwen's templates call enable_thinking; nil leaves
	// the template its own default.
	EnableThinking *bool
	// Tools is a list of JSON tool descriptions, e.g. a json.RawMessage; nil
	// means none.
	Tools any
	// DateString is the date_string of Llama's templates, e.g. "26 Jul 2024".
	DateString string
	// Now is the time that strftime_now shows. The clock is never read: with
	// the zero Time the function does not exist, and templates that test for
	// it use a date of their own.
	Now time.Time
	// BOS and EOS are the texts of bos_token and eos_token.
	BOS, EOS string
	// Extra holds further variables; it wins over the fields above.
	Extra map[string]any
}

// RenderChat returns the prompt a chat template makes of messages: a
// [][Message], or any list [Template.Render] accepts, such as the json.RawMessage
// of a request. Encode the result without adding special tokens: the template
// has written them.
func RenderChat(t *Template, messages any, o ChatOptions) (string, error) {
	if t == nil {
		return "", errors.New("jinja: render chat: no template: parse the model's, or use ChatML")
	}
	vars := map[string]any{"messages": messages, "add_generation_prompt": o.AddGenerationPrompt, "bos_token": o.BOS, "eos_token": o.EOS}
	if o.EnableThinking != nil {
		vars["enable_thinking"] = *o.EnableThinking
	}
	vars["tools"], vars["documents"] = o.Tools, nil
	if o.DateString != "" {
		vars["date_string"] = o.DateString
	}
	if !o.Now.IsZero() {
		vars["strftime_now"] = func(format string) (string, error) { return strftime(format, o.Now) }
	}
	for k, v := range o.Extra {
		vars[k] = v
	}
	return t.Render(vars)
}

// chatML is the common form of Qwen and SmolLM without their extras. A list of
// tools or calls is refused rather than dropped.
const chatML = `{%- if tools %}{{ raise_exception("plain ChatML has no form for tools: use the model's own template") }}{% endif %}
{%- for message in messages %}
{%- if message.tool_calls %}{{ raise_exception("plain ChatML has no form for tool calls: use the model's own template") }}{% endif %}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{% endif %}`

// ChatML returns a plain ChatML template, for models that come without one:
// <|im_start|>ROLE, newline, content, <|im_end|>, newline for every message.
func ChatML() *Template {
	t, err := Parse("chatml", chatML)
	if err != nil {
		panic(err) // the text above is constant
	}
	return t
}

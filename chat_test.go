package samebit_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"samebit"
	"samebit/token/jinja"
)

// What a user writes cannot end the turn it stands in.
func TestChatTextIsText(t *testing.T) {
	m, err := samebit.Open("testdata/models/gguf/qwen3-bf16.gguf", samebit.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	count := func(text string) (n int) {
		ids, err := m.EncodeChat([]samebit.Message{{Role: "user", Content: text}}, samebit.ChatConfig{})
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			if m.Tokenizer.IsSpecial(id) {
				n++
			}
		}
		return n
	}
	special := ""
	for id := range int32(m.Tokenizer.Size()) {
		if m.Tokenizer.IsSpecial(id) {
			special += string(m.Tokenizer.TokenBytes(id))
		}
	}
	if special == "" {
		t.Fatal("the model has no control tokens")
	}
	if a, b := count("hello"), count("hello "+special+"\uFDD0 there"); a != b || a == 0 {
		t.Errorf("control tokens in the prompt: %d, with a hostile message %d", a, b)
	}
	// An ordinary message is encoded as its rendering is.
	msg := []samebit.Message{{Role: "system", Content: "Be brief."}, {Role: "user", Content: "Hi"}}
	text, err := m.RenderChat(msg, samebit.ChatConfig{})
	if err != nil {
		t.Fatal(err)
	}
	ids, err := m.EncodeChat(msg, samebit.ChatConfig{})
	if err != nil || !slices.Equal(ids, m.Tokenizer.Encode(nil, text)) {
		t.Errorf("EncodeChat gives %v (%v), the rendering %v", ids, err, m.Tokenizer.Encode(nil, text))
	}
}

// Nor can the name of a tool or the arguments of a call, however they are spelled.
func TestToolCallsAreText(t *testing.T) {
	dir := directory(t)
	template := `{%- for v in messages %}{{ v.role + v.name + v.content }}{% for c in v.tool_calls %}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}`
	if err := os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte(template), 0o644); err != nil {
		t.Fatal(err)
	}
	m := open(t, dir, samebit.Config{})
	special := ""
	for id := range int32(m.Tokenizer.Size()) {
		if m.Tokenizer.IsSpecial(id) {
			special = string(m.Tokenizer.TokenBytes(id))
		}
	}
	if special == "" {
		t.Fatal("the model has no control tokens")
	}
	escaped := fmt.Sprintf(`\u%04x%s`, special[0], special[1:])
	for _, hostile := range []string{special, escaped, `\"` + special, special + `\ufdd0`} {
		var call jinja.ToolCall
		call.Function.Name = special
		call.Function.Arguments = json.RawMessage(`{"` + hostile + `": [1, "` + hostile + `"], "b": {"c": "d"}}`)
		msg := []samebit.Message{{Role: "tool" + special, Name: special, Content: special, ToolCalls: []jinja.ToolCall{call}}}
		want, err := m.RenderChat(msg, samebit.ChatConfig{})
		if err != nil {
			t.Fatal(err)
		}
		ids, err := m.EncodeChat(msg, samebit.ChatConfig{})
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			if m.Tokenizer.IsSpecial(id) {
				t.Errorf("arguments %s: a control token acts", call.Function.Arguments)
				break
			}
		}
		if got := string(m.Tokenizer.Decode(nil, ids)); got != want {
			t.Errorf("encoded as %q, rendered as %q", got, want)
		}
	}
}

package jinja

import (
	"bytes"
	"encoding/json"
	"slices"
)

// MapText returns messages with f applied to everything that somebody said: the
// roles, contents, names and the strings in the arguments of tool calls.
func MapText(messages []Message, f func(string) string) []Message {
	messages = slices.Clone(messages)
	for i := range messages {
		v := &messages[i]
		v.Role, v.Content, v.ReasoningContent = f(v.Role), f(v.Content), f(v.ReasoningContent)
		v.ToolCallID, v.Name = f(v.ToolCallID), f(v.Name)
		v.ToolCalls = slices.Clone(v.ToolCalls)
		for j := range v.ToolCalls {
			c := &v.ToolCalls[j]
			c.ID, c.Type, c.Function.Name = f(c.ID), f(c.Type), f(c.Function.Name)
			c.Function.Arguments = MapStrings(c.Function.Arguments, f)
		}
	}
	return messages
}

// MapStrings applies f to the strings, keys too, of a JSON text. What is no JSON
// stays as it is, for the renderer to refuse.
func MapStrings(text []byte, f func(string) string) []byte {
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

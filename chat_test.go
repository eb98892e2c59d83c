package samebit_test

import (
	"slices"
	"testing"

	"samebit"
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

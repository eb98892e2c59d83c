package samebit_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"samebit"
)

func chat(t testing.TB, m *samebit.Model, cfg samebit.ChatConfig) *samebit.Chat {
	t.Helper()
	c, err := m.NewChat(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func send(t testing.TB, c *samebit.Chat, text string, g samebit.Gen) string {
	t.Helper()
	var b strings.Builder
	for tok, err := range c.Send(bg, text, g) {
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString(tok.Text)
	}
	return b.String()
}

func roles(c *samebit.Chat) string {
	var l []string
	for _, m := range c.Messages {
		l = append(l, m.Role)
	}
	return strings.Join(l, " ")
}

// TestChat: a turn costs what is new, and gives what a fresh start would.
func TestChat(t *testing.T) {
	for _, path := range []string{tiny, hybrid} {
		m := open(t, path, samebit.Config{ChunkRows: 16})
		c := chat(t, m, samebit.ChatConfig{System: "You are brief."})
		var rep samebit.Report
		g := samebit.Gen{MaxTokens: 12, Report: &rep}
		var answers []string
		for i, text := range []string{"Hello", "And then?", "Why?"} {
			before, err := m.RenderChat(c.Messages, samebit.ChatConfig{})
			if err != nil {
				t.Fatal(err)
			}
			answers = append(answers, send(t, c, text, g))
			if i > 0 && (rep.Reused == 0 || rep.Reused >= rep.PromptTokens) {
				t.Errorf("%s: turn %d reuses %d of %d rows", path, i, rep.Reused, rep.PromptTokens)
			}
			if i > 0 && path == tiny && rep.Reused < len(m.Tokenizer.Encode(nil, before))/2 {
				t.Errorf("turn %d reuses only %d rows of %q", i, rep.Reused, before)
			}
		}
		if roles(c) != "system user assistant user assistant user assistant" {
			t.Errorf("messages %s", roles(c))
		}
		for i, a := range answers { // the same turn in a new conversation
			f := chat(t, m, samebit.ChatConfig{})
			f.Messages = slices.Clone(c.Messages[:1+2*i])
			if got := send(t, f, c.Messages[1+2*i].Content, g); got != a || c.Messages[2+2*i].Content != a {
				t.Errorf("%s: turn %d is %q, from a fresh start %q, remembered %q", path, i, a, got, c.Messages[2+2*i].Content)
			}
			if rep.Reused != 0 {
				t.Errorf("a fresh conversation reuses %d rows", rep.Reused)
			}
		}
		// The same prompt once more in the same conversation.
		for range 3 {
			c.Messages = c.Messages[:1]
			if got := send(t, c, "Hello", g); got != answers[0] {
				t.Errorf("%s: repeated, %q becomes %q", path, answers[0], got)
			}
			if rep.Reused != rep.PromptTokens-1 && path == tiny {
				t.Errorf("a repeated prompt reuses %d of %d rows", rep.Reused, rep.PromptTokens)
			}
		}
	}
}

// TestChatInterrupted keeps what was said, and takes back what was not answered.
func TestChatInterrupted(t *testing.T) {
	m := open(t, tiny, samebit.Config{ChunkRows: 4})
	g := samebit.Gen{MaxTokens: 12}
	want := send(t, chat(t, m, samebit.ChatConfig{}), "Hello", g)

	c := chat(t, m, samebit.ChatConfig{})
	var said string
	n := 0
	for tok := range c.Send(bg, "Hello", g) {
		said += tok.Text
		if n++; n == 5 {
			break
		}
	}
	if roles(c) != "user assistant" || c.Messages[1].Content != said || said == "" || !strings.HasPrefix(want, said) {
		t.Errorf("left after 5 tokens: messages %+v, said %q of %q", c.Messages, said, want)
	}

	ctx, cancel := context.WithCancel(bg)
	defer cancel()
	said, n = "", 0
	var last error
	for tok, err := range c.Send(ctx, "More", g) {
		said, last = said+tok.Text, err
		if n++; n == 4 {
			cancel()
		}
	}
	if !errors.Is(last, context.Canceled) || roles(c) != "user assistant user assistant" || c.Messages[3].Content != said {
		t.Errorf("cancelled after 4 tokens: %v, messages %+v, said %q", last, c.Messages, said)
	}

	before := slices.Clone(c.Messages)
	for _, err := range c.Send(ctx, "Unheard", g) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("sent with a cancelled context: %v", err)
		}
	}
	ctx, cancel = context.WithCancel(bg)
	defer cancel()
	stop := g
	stop.Prefill = func(int, int) { cancel() }
	for _, err := range c.Send(ctx, strings.Repeat("Unheard ", 9), stop) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled during the prompt: %v", err)
		}
	}
	for _, err := range c.Send(bg, strings.Repeat("far too long ", 200), g) {
		if err == nil {
			t.Error("a message beyond the context gives no error")
		}
	}
	if len(c.Messages) != len(before) || roles(c) != "user assistant user assistant" {
		t.Errorf("messages that were not answered stayed: %+v", c.Messages)
	}

	// After all that the conversation goes on as a fresh one would.
	got := send(t, c, "Well?", g)
	f := chat(t, m, samebit.ChatConfig{})
	f.Messages = before
	if want := send(t, f, "Well?", g); got != want {
		t.Errorf("after interruptions %q, from a fresh start %q", got, want)
	}
}

func TestChatRendering(t *testing.T) {
	m := open(t, tiny, samebit.Config{})
	c := chat(t, m, samebit.ChatConfig{System: "S"})
	c.Messages = append(c.Messages, samebit.Message{Role: "user", Content: "U"})
	got, err := c.Prompt()
	if want := "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n"; err != nil || got != want {
		t.Errorf("prompt %q (%v), want %q", got, err, want)
	}
}

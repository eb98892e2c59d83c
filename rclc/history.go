package rclc

import (
	"strconv"
	"strings"

	"samebit/token"
	"samebit/token/jinja"
)

// NewChat returns how conversations are rendered with a template, nil meaning the
// tokenizer's own, and encoded: thinking is off, and what messages say is text, so a
// message that spells a control token does not end its turn.
func NewChat(tok *token.Tokenizer, t *jinja.Template) (ChatFunc, error) {
	if tok == nil {
		return nil, fail(ErrOption, "chat", "a chat needs a tokenizer")
	}
	if t == nil {
		if tok.ChatTemplate == "" {
			return nil, fail(ErrOption, "chat_template", "the tokenizer has no chat template: give one, such as jinja.ChatML(), or work with text or ids instead of histories")
		}
		var err error
		if t, err = jinja.Parse("chat template", tok.ChatTemplate); err != nil {
			return nil, fail(ErrOption, "chat_template", "the tokenizer's chat template: %w", err)
		}
	}
	return func(messages []jinja.Message, reply bool, cut string) (before, after []int32, err error) {
		guard := unsaid("\uFDD0", "\uFDD1", textsOf(messages)...)
		said := jinja.MapText(messages, func(s string) string { return tok.Guard(s, guard) })
		off := false
		o := jinja.ChatOptions{AddGenerationPrompt: reply, EnableThinking: &off}
		if tok.BOS != token.NoToken {
			o.BOS = string(tok.TokenBytes(tok.BOS))
		}
		if tok.EOS != token.NoToken {
			o.EOS = string(tok.TokenBytes(tok.EOS))
		}
		text, err := jinja.RenderChat(t, said, o)
		if err != nil {
			return nil, nil, fail(ErrRequest, "chat_render", "%w", err)
		}
		a, b := text, ""
		if cut != "" {
			if n := strings.Count(text, cut); n != 1 {
				return nil, nil, fail(ErrRequest, "chat_place", "the chat template shows the user's turn %d times, so it is not clear where received rows go inside it: put them before the prompt", n)
			}
			a, b, _ = strings.Cut(text, cut)
		}
		return tok.EncodeGuarded(nil, a, guard), tok.EncodeGuarded(nil, b, guard), nil
	}, nil
}

// unsaid returns a text that does not occur in what is said, nor in anything that
// joins a part of that to it: begin and end are noncharacters, others for each use.
func unsaid(begin, end string, said ...string) string {
	all := strings.Join(said, "\x00")
	for i := 0; ; i++ {
		if s := begin + strconv.Itoa(i) + end; !strings.Contains(all, s) {
			return s
		}
	}
}

// textsOf lists what messages say.
func textsOf(messages []jinja.Message) (texts []string) {
	jinja.MapText(messages, func(s string) string { texts = append(texts, s); return s })
	return texts
}

package jinja

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// templateText finds a template in testdata or in the user's cache, where
// scripts/fetch-templates.sh puts those whose licence keeps them out of here.
func templateText(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".jinja"))
	if errors.Is(err, os.ErrNotExist) {
		dir, cacheErr := os.UserCacheDir()
		if cacheErr != nil {
			t.Skip(cacheErr)
		}
		path := filepath.Join(dir, "samebit", "templates", name+".jinja")
		if text, err = os.ReadFile(path); err != nil {
			t.Skipf("%v: run scripts/fetch-templates.sh", err)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

type chatGoldens struct {
	DateString string `json:"date_string"`
	Templates  map[string]struct {
		SHA256   string
		Rendered map[string]struct{ Text, Error, Message *string }
	}
	Cases map[string]struct {
		Messages json.RawMessage
		Options  struct {
			AddGenerationPrompt *bool `json:"add_generation_prompt"`
			EnableThinking      *bool `json:"enable_thinking"`
		}
		Tools bool
	}
	Tools json.RawMessage
}

func readGoldens(t testing.TB) (g chatGoldens) {
	t.Helper()
	raw, err := os.ReadFile("../../testdata/models/text/chat.json")
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if err := d.Decode(&g); err != nil {
		t.Fatal(err)
	}
	return g
}

func TestChatGoldens(t *testing.T) {
	g := readGoldens(t)
	if len(g.Templates) != 7 || len(g.Cases) != 23 {
		t.Fatalf("%d templates, %d cases; want 7 and 23", len(g.Templates), len(g.Cases))
	}
	for family, want := range g.Templates {
		t.Run(family, func(t *testing.T) {
			text := templateText(t, strings.TrimSuffix(family, "_npm"))
			if sum := sha256.Sum256([]byte(text)); hex.EncodeToString(sum[:]) != want.SHA256 {
				t.Fatalf("template text has sha256 %x, the goldens were made with %s", sum, want.SHA256)
			}
			tpl, err := Parse(family, text)
			if err != nil {
				t.Fatal(err)
			}
			for name, w := range want.Rendered {
				c := g.Cases[name]
				o := ChatOptions{AddGenerationPrompt: true, EnableThinking: c.Options.EnableThinking}
				if c.Options.AddGenerationPrompt != nil {
					o.AddGenerationPrompt = *c.Options.AddGenerationPrompt
				}
				if strings.HasPrefix(family, "llama") {
					o.DateString, o.BOS = g.DateString, "<|begin_of_text|>"
				}
				if c.Tools {
					o.Tools = g.Tools
				}
				got, err := RenderChat(tpl, c.Messages, o)
				if w.Error != nil {
					var e *Error
					if !errors.As(err, &e) || !e.Raised || e.Msg != *w.Message {
						t.Errorf("%s: got %v, want the template to raise %q", name, err, *w.Message)
					}
					continue
				}
				if err != nil {
					t.Errorf("%s: %v", name, err)
				} else if got != *w.Text {
					t.Errorf("%s:\n got %q\nwant %q", name, got, *w.Text)
				}
			}
		})
	}
}

func TestMessageStructs(t *testing.T) {
	tpl, err := Parse("qwen3", templateText(t, "qwen3"))
	if err != nil {
		t.Fatal(err)
	}
	g := readGoldens(t)
	got, err := RenderChat(tpl, []Message{
		{Role: "user", Content: "Weather?"},
		{Role: "assistant", Content: "", ToolCalls: []ToolCall{{Type: "function", Function: FunctionCall{"get_weather", json.RawMessage(`{"place":"Oslo \"N\" <b> & é","days":2}`)}}}},
		{Role: "tool", Content: `{"temp": 3}`},
		{Role: "assistant", Content: "It is 3 degrees."},
		{Role: "user", Content: "Thanks"},
	}, ChatOptions{AddGenerationPrompt: true, Tools: g.Tools})
	if want := *g.Templates["qwen3"].Rendered["tool_call_args_object"].Text; err != nil || got != want {
		t.Errorf("%v\n got %q\nwant %q", err, got, want)
	}
}

func TestChatML(t *testing.T) {
	msgs := []Message{{Role: "system", Content: " a\n"}, {Role: "user", Content: "é {{ x }}"}}
	got, err := RenderChat(ChatML(), msgs, ChatOptions{AddGenerationPrompt: true})
	want := "<|im_start|>system\n a\n<|im_end|>\n<|im_start|>user\né {{ x }}<|im_end|>\n<|im_start|>assistant\n"
	if err != nil || got != want {
		t.Errorf("%v: got %q, want %q", err, got, want)
	}
	var e *Error
	if _, err := RenderChat(ChatML(), msgs, ChatOptions{Tools: json.RawMessage(`[{}]`)}); !errors.As(err, &e) || !e.Raised {
		t.Errorf("tools were not refused: %v", err)
	}
	if _, err := RenderChat(nil, msgs, ChatOptions{}); err == nil {
		t.Error("no template: no error")
	}
}

func TestStrftimeNow(t *testing.T) {
	tpl, err := Parse("date", `{% if strftime_now is defined %}{{ strftime_now("%d %b %Y") }}{% else %}none{% endif %}`)
	if err != nil {
		t.Fatal(err)
	}
	day := time.Date(2025, 3, 7, 4, 5, 6, 0, time.UTC)
	for want, o := range map[string]ChatOptions{"none": {}, "07 Mar 2025": {Now: day}} {
		if got, err := RenderChat(tpl, nil, o); err != nil || got != want {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
	got, err := strftime("%A %-d %B %y, %j %H:%M:%S %p %F %% %e", day)
	if want := "Friday 7 March 25, 066 04:05:06 AM 2025-03-07 %  7"; err != nil || got != want {
		t.Errorf("strftime: %q, %v; want %q", got, err, want)
	}
	if _, err := strftime("%Q", day); err == nil {
		t.Error("%Q: no error")
	}
}

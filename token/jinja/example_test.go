package jinja_test

import (
	"fmt"
	"log"
	"testing"

	"samebit/token/jinja"
)

func ExampleRenderChat() {
	t, err := jinja.Parse("tiny", `{% for m in messages %}[{{ m.role|upper }}] {{ m.content|trim }}
{% endfor %}{% if add_generation_prompt %}[ASSISTANT] {% endif %}`)
	if err != nil {
		log.Fatal(err)
	}
	text, err := jinja.RenderChat(t, []jinja.Message{
		{Role: "system", Content: "Be brief. "},
		{Role: "user", Content: "Hello"},
	}, jinja.ChatOptions{AddGenerationPrompt: true})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(text)
	// Output:
	// [SYSTEM] Be brief.
	// [USER] Hello
	// [ASSISTANT]
}

func ExampleFromJSON() {
	tool, err := jinja.FromJSON([]byte(`{"name": "f", "about": "a < b & é", "args": {}}`))
	if err != nil {
		log.Fatal(err)
	}
	t, err := jinja.Parse("tool", `{{ tool|tojson }}`)
	if err != nil {
		log.Fatal(err)
	}
	text, err := t.Render(map[string]any{"tool": tool})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(text)
	// Output: {"name": "f", "about": "a < b & é", "args": {}}
}

func BenchmarkRenderChat(b *testing.B) {
	t := jinja.ChatML()
	for _, n := range []int{2, 200} {
		msgs := make([]jinja.Message, n)
		for i := range msgs {
			msgs[i] = jinja.Message{Role: [2]string{"user", "assistant"}[i%2], Content: "What is the capital of Norway, and how far is it from here?"}
		}
		b.Run(fmt.Sprintf("chatml/messages=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := jinja.RenderChat(t, msgs, jinja.ChatOptions{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

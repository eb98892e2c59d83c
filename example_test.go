package samebit_test

import (
	"context"
	"fmt"
	"log"

	"samebit"
)

// The model of these examples is a tiny one with random weights.
const tinyModel = "testdata/models/gguf/qwen3-bf16.gguf"

func ExampleOpen() {
	m, err := samebit.Open(tinyModel, samebit.Config{Threads: 2})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	fmt.Println(m.Shape.ModelType, m.Shape.Layers, "layers,", m.Tokenizer.Size(), "tokens")
	// Output: qwen3 3 layers, 512 tokens
}

func ExampleModel_Generate() {
	m, err := samebit.Open(tinyModel, samebit.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	var report samebit.Report
	text := ""
	for tok, err := range m.Generate(context.Background(), "1, 2, 3,", samebit.Gen{MaxTokens: 4, Report: &report}) {
		if err != nil {
			log.Fatal(err)
		}
		text += tok.Text
	}
	fmt.Printf("%q\n", text)
	fmt.Println(report.PromptTokens, report.Tokens, report.Reason)
	// Output:
	// "lasslass reion"
	// 8 4 length
}

func ExampleModel_NewChat() {
	m, err := samebit.Open(tinyModel, samebit.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	chat, err := m.NewChat(samebit.ChatConfig{System: "You are brief."})
	if err != nil {
		log.Fatal(err)
	}
	defer chat.Close()
	for _, text := range []string{"Hello", "Why?"} {
		var report samebit.Report
		for _, err := range chat.Send(context.Background(), text, samebit.Gen{MaxTokens: 5, Report: &report}) {
			if err != nil {
				log.Fatal(err)
			}
		}
		fmt.Printf("%q (%d of %d rows were there)\n", chat.Messages[len(chat.Messages)-1].Content, report.Reused, report.PromptTokens)
	}
	// Output:
	// "7 c c c c" (0 of 36 rows were there)
	// "λ%name A re" (40 of 62 rows were there)
}

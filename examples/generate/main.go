// Command generate continues a text with a local model:
//
//	go run ./examples/generate MODEL "Once upon a time"
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"

	"samebit"
	"samebit/sample"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatalf("usage: %s MODEL PROMPT", os.Args[0])
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	m, err := samebit.Open(os.Args[1], samebit.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	var report samebit.Report
	gen := samebit.Gen{MaxTokens: 48, Sample: sample.Config{Temperature: 0.7, TopK: 40, Seed: 1}, Report: &report}
	for tok, err := range m.Generate(ctx, os.Args[2], gen) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(tok.Text)
	}
	fmt.Printf("\n%d tokens, %.1f per second\n", report.Tokens, float64(report.Tokens)/report.Decode.Seconds())
}

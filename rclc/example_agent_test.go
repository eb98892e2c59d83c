package rclc_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"samebit/backend/cpu"
	"samebit/checkpoint"
	"samebit/qwen3"
	"samebit/rclc"
	"samebit/state"
	"samebit/token"
	"samebit/token/jinja"
)

// tiny is a model of random weights and a small vocabulary.
func tiny(ctx context.Context) (m *rclc.Model, tok *token.Tokenizer, done func()) {
	dev, err := cpu.New(cpu.Config{})
	if err != nil {
		log.Fatal(err)
	}
	set, err := checkpoint.Open("../testdata/models/gguf/qwen35-f32.gguf")
	if err != nil {
		log.Fatal(err)
	}
	defer set.Close()
	shape, err := qwen3.FromSet(set)
	if err != nil {
		log.Fatal(err)
	}
	dec, err := qwen3.Load(ctx, dev, shape, set, qwen3.LoadOptions{})
	if err != nil {
		log.Fatal(err)
	}
	pool, err := state.NewPool(dev, 0)
	if err != nil {
		log.Fatal(err)
	}
	if tok, err = token.Open("../testdata/models/tokenizers/bpe-512"); err != nil {
		log.Fatal(err)
	}
	chat, err := rclc.NewChat(tok, jinja.ChatML())
	if err != nil {
		log.Fatal(err)
	}
	m, err = rclc.NewModel(dec, pool, rclc.ModelConfig{ModelType: shape.ModelType, Tokenizer: tok, Chat: chat})
	if err != nil {
		log.Fatal(err)
	}
	return m, tok, func() {
		pool.Close()
		dec.Close()
		dev.Close()
	}
}

// A worker that has read a document hands what the manager asks for to the manager,
// who answers, and remembers the answer.
func Example_conversation() {
	ctx := context.Background()
	model, _, done := tiny(ctx)
	defer done()

	worker, err := rclc.Bind(ctx, model, rclc.AgentConfig{
		Text: "The north tower has a lamp. Its keeper sleeps by day. The south tower has a bell, and nobody to ring it.",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer worker.Close()
	history := []jinja.Message{{Role: "system", Content: "Answer in a few words."}}
	manager, err := rclc.Bind(ctx, model, rclc.AgentConfig{
		History:      func() []jinja.Message { return history },
		MaxNewTokens: 8,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer manager.Close()

	question := rclc.Request{Text: "Who sleeps by day?"}
	err = rclc.Transfer(ctx, []rclc.Source{worker}, []rclc.Receiver{manager}, []rclc.Request{question}, rclc.Config{Ratio: 4})
	if err != nil {
		log.Fatal(err)
	}
	inputs, err := manager.Pop(ctx, rclc.PopConfig{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("received", inputs.Inherited, "rows of", inputs.Len())

	seq, stream, err := inputs.Runner(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer stream.Close()
	defer seq.Close()
	var answer []int32
	for range inputs.Allowance {
		best := 0 // or draw one with package sample
		for id, x := range seq.Logits() {
			if x > seq.Logits()[best] {
				best = id
			}
		}
		answer = append(answer, int32(best))
		if err := seq.Step(ctx, int32(best)); err != nil {
			log.Fatal(err)
		}
	}
	snap, err := seq.Snapshot()
	if err != nil {
		log.Fatal(err)
	}
	defer snap.Release()
	if err := manager.Update(ctx, inputs, rclc.Generation{IDs: answer, Snap: snap}); err != nil {
		log.Fatal(err)
	}
	report := manager.Inspect(false)
	fmt.Println("the manager retains", report.CachedPositions, "positions,", report.QueuedRequests, "deliveries are queued")
	// Output:
	// received 15 rows of 66
	// the manager retains 74 positions, 0 deliveries are queued
}

// What an agent knows survives its process.
func ExampleAgent_Save() {
	ctx := context.Background()
	model, tok, done := tiny(ctx)
	defer done()
	dir, err := os.MkdirTemp("", "rclc")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "keeper.rclc")

	keeper, err := rclc.Bind(ctx, model, rclc.AgentConfig{Text: "The lamp burns all night."})
	if err != nil {
		log.Fatal(err)
	}
	defer keeper.Close()
	if err := keeper.Save(ctx, file); err != nil {
		log.Fatal(err)
	}

	another, err := rclc.Bind(ctx, model, rclc.AgentConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer another.Close()
	if err := another.Load(ctx, file, rclc.LoadConfig{}); err != nil {
		log.Fatal(err)
	}
	s, err := another.Sender(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Release()
	fmt.Println(tok.Text(s.IDs()))
	// Output: The lamp burns all night.
}

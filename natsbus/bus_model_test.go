package natsbus_test

import (
	"context"
	"log"

	"samebit/backend/cpu"
	"samebit/checkpoint"
	"samebit/qwen3"
	"samebit/rclc"
	"samebit/state"
)

// tinyModel is a model of testdata with what must be closed after it.
type tinyModel struct {
	*rclc.Model
	close func()
}

func tiny() tinyModel {
	must := func(err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
	dev, err := cpu.New(cpu.Config{Threads: 1})
	must(err)
	set, err := checkpoint.Open("../testdata/models/gguf/qwen3-bf16.gguf")
	must(err)
	defer set.Close()
	cfg, err := qwen3.FromSet(set)
	must(err)
	dec, err := qwen3.Load(context.Background(), dev, cfg, set, qwen3.LoadOptions{})
	must(err)
	pool, err := state.NewPool(dev, 0)
	must(err)
	m, err := rclc.NewModel(dec, pool, rclc.ModelConfig{ModelType: cfg.ModelType})
	must(err)
	return tinyModel{m, func() { pool.Close(); dec.Close(); dev.Close() }}
}

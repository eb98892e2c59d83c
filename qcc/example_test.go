package qcc_test

import (
	"bytes"
	"context"
	"fmt"
	"log"

	"samebit/backend/cpu"
	"samebit/qcc"
)

// A layer of its own: a text goes through in steps and chunks, its state is saved
// and continues with the same bits.
func Example() {
	dev, err := cpu.New(cpu.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	cfg := qcc.DefaultConfig(32, 4)
	cfg.Window = 8
	params, err := qcc.NewParams(cfg, 1)
	if err != nil {
		log.Fatal(err)
	}
	var maps qcc.Projections
	for i, m := range []*[]float32{&maps.Q, &maps.K, &maps.V, &maps.O} {
		*m = make([]float32, 32*32)
		qcc.Uniform(*m, uint64(i), "map", 0.2)
	}
	layer, err := qcc.New(dev, cfg, &maps, params)
	if err != nil {
		log.Fatal(err)
	}
	defer layer.Close()
	st, err := layer.NewState()
	if err != nil {
		log.Fatal(err)
	}
	defer st.Release()

	rows := make([]float32, 100*32)
	qcc.Uniform(rows, 9, "rows", 1)
	out := make([]float32, len(rows))
	if err := layer.Chunk(context.Background(), out, st, qcc.Block{Hidden: rows}); err != nil {
		log.Fatal(err)
	}
	var file bytes.Buffer
	if err := st.Save(&file); err != nil {
		log.Fatal(err)
	}
	again, err := layer.NewState()
	if err != nil {
		log.Fatal(err)
	}
	defer again.Release()
	if err := again.Read(&file); err != nil {
		log.Fatal(err)
	}
	a, b := make([]float32, 32), make([]float32, 32)
	if err := layer.Step(a, st, qcc.Block{Hidden: rows[:32]}); err != nil {
		log.Fatal(err)
	}
	if err := layer.Step(b, again, qcc.Block{Hidden: rows[:32]}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(st.Seen(), again.Seen(), fmt.Sprint(a) == fmt.Sprint(b))
	fmt.Println("elements, whatever the length:", cfg.Elements(1), "of", st.Account().FullKV)
	// Output:
	// 101 101 true
	// elements, whatever the length: 2816 of 6464
}

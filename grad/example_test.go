package grad_test

import (
	"fmt"
	"log"

	"samebit/backend"
	"samebit/backend/ref"
	"samebit/grad"
	"samebit/tensor"
)

// A line through points: y = w·x, fitted by AdamW.
func ExampleTape() {
	dev := ref.New()
	s, err := dev.NewStream()
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	params, err := grad.NewParams(s, dev)
	if err != nil {
		log.Fatal(err)
	}
	defer params.Close()

	start := []float32{0, 0}
	m, _ := tensor.FromF32(start, 1, 2)
	w, err := dev.Pack(m, backend.UseLinear)
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Unpack(w)
	p, err := params.AddWeight("w", w, start)
	if err != nil {
		log.Fatal(err)
	}
	tape, err := grad.NewTape(s, dev, params)
	if err != nil {
		log.Fatal(err)
	}
	defer tape.Close()
	opt, err := grad.NewAdamW(params, grad.AdamWConfig{})
	if err != nil {
		log.Fatal(err)
	}

	x, _ := tensor.FromF32([]float32{1, 0, 0, 1, 1, 1}, 3, 2)
	want, _ := tensor.FromF32([]float32{2, -1, 1}, 3, 1)
	y, _ := tensor.FromF32(make([]float32, 3), 3, 1)
	loss, _ := tensor.FromF32(make([]float32, 3), 3)
	for range 300 {
		tape.Plan([]backend.Seg{{Rows: 3}})
		tape.Linear(y, x, w)
		tape.SquaredError(loss, y, want, tensor.Tensor{}, 1.0/3)
		if err := tape.Backward(); err != nil {
			log.Fatal(err)
		}
		if _, err := opt.Step(0.05); err != nil {
			log.Fatal(err)
		}
	}
	v, _ := p.Value.F32()
	fmt.Printf("%.3f\n", v)
	// Output: [2.000 -1.000]
}

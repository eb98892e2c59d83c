package sample_test

import (
	"fmt"
	"log"

	"samebit/sample"
)

func ExampleSampler_Next() {
	s, err := sample.New(sample.Config{Temperature: 0.7, TopK: 20, TopP: new(float32(0.8)), Seed: 7}, 5)
	if err != nil {
		log.Fatal(err)
	}
	logits := []float32{0.5, 3, 2.5, -1, 2.75}
	var history []int32
	for step := range uint64(8) {
		id, err := s.Next(logits, history, 0, step)
		if err != nil {
			log.Fatal(err)
		}
		history = append(history, id)
	}
	fmt.Println(history) // the same on every machine
	// Output: [4 1 1 2 2 4 4 1]
}

func ExampleStopMatcher() {
	m, err := sample.NewStopMatcher([]string{"\nUser:"})
	if err != nil {
		log.Fatal(err)
	}
	for _, piece := range []string{"Hi", " there", "\nUs", "er", ": me"} {
		out, done := m.Push(piece)
		fmt.Printf("%q %v\n", out, done)
	}
	fmt.Printf("%q\n", m.Flush())
	// Output:
	// "Hi" false
	// " there" false
	// "" false
	// "" false
	// "" true
	// ""
}

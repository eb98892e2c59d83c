package checkpoint_test

import (
	"fmt"
	"log"

	"samebit/checkpoint"
)

func ExampleOpen() {
	set, err := checkpoint.Open("../testdata/models/checkpoints/qwen3-tied-bf16")
	if err != nil {
		log.Fatal(err)
	}
	defer set.Close()
	w, err := set.Tensor("model.layers.0.self_attn.q_norm.weight")
	if err != nil {
		log.Fatal(err)
	}
	sum := set.Summary()
	fmt.Println(sum.Format, sum.Architecture, sum.Tensors, "tensors,", sum.Parameters, "parameters")
	fmt.Println(w.Name, w.Type, w.Shape, len(w.Data), "bytes")
	// Output:
	// safetensors Qwen3ForCausalLM 35 tensors, 199296 parameters
	// model.layers.0.self_attn.q_norm.weight BF16 [32] 64 bytes
}

// Package models carries small language models of our own as embedded files: what
// samebit runs when no model is named. They were trained by samebit train from the
// recipes beside them, such as tiny.json; the same command gives the same files to the
// last bit. docs/models.md says what they can do, which is to find
// what the text before a question states, and little else.
//
// The package is a module of its own, so that programs that bring their own model
// do not carry these:
//
//	files, err := models.Open("tiny")
//	if err != nil { … }
//	m, err := samebit.OpenFS(ctx, "tiny", files, samebit.Config{})
package models

import (
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// Default is the model for whoever names none.
const Default = "tiny"

// Names are all models: tiny is dense, of the architecture of Qwen3; tiny-hybrid has
// attention and Gated DeltaNet layers, as Qwen3.5 has.
var Names = []string{"tiny", "tiny-hybrid"}

//go:embed tiny tiny-hybrid
var files embed.FS

// Open returns the directory of a model: config.json, tokenizer.json,
// tokenizer_config.json and model.safetensors.
func Open(name string) (fs.FS, error) {
	if !slices.Contains(Names, name) {
		return nil, fmt.Errorf("models: no model %q: have %s", name, strings.Join(Names, ", "))
	}
	return fs.Sub(files, name)
}

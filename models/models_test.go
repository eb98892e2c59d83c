package models_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"

	"samebit/models"
)

// The embedded files are those that were recorded, and few.
func TestFiles(t *testing.T) {
	sums, err := os.ReadFile("SHA256SUMS")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for s := bufio.NewScanner(bytes.NewReader(sums)); s.Scan(); {
		sum, name, ok := strings.Cut(s.Text(), "  ")
		if !ok {
			t.Fatalf("SHA256SUMS: %q", s.Text())
		}
		want[name] = sum
	}
	total := 0
	for _, model := range models.Names {
		files, err := models.Open(model)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"} {
			b, err := fs.ReadFile(files, name)
			if err != nil {
				t.Fatal(err)
			}
			total += len(b)
			path := model + "/" + name
			if got := fmt.Sprintf("%x", sha256.Sum256(b)); got != want[path] {
				t.Errorf("%s has the hash %s, SHA256SUMS says %q", path, got, want[path])
			}
			delete(want, path)
		}
		var recipe struct {
			Name string `json:"name"`
		}
		b, err := os.ReadFile(model + ".json")
		if err == nil {
			err = json.Unmarshal(b, &recipe)
		}
		if err != nil || recipe.Name != model {
			t.Errorf("the recipe of %s names %q (%v)", model, recipe.Name, err)
		}
	}
	if len(want) > 0 {
		t.Errorf("SHA256SUMS has %v, too", want)
	}
	if total > 12e6 {
		t.Errorf("the models have %d bytes: at most 12 MB are carried", total)
	}
}

func TestOpenNames(t *testing.T) {
	if _, err := models.Open("huge"); err == nil || !strings.Contains(err.Error(), `"huge"`) || !strings.Contains(err.Error(), models.Default) {
		t.Errorf("a model that is not there: %v", err)
	}
}

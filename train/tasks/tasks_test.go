package tasks_test

import (
	"fmt"
	"strings"
	"testing"

	"samebit/train/tasks"
)

func Example() {
	s := tasks.Make(tasks.Config{Seed: 1, Kinds: []tasks.Kind{tasks.KeyValue}, Formats: []tasks.Format{tasks.Plain}, Bytes: 30}, 3)
	fmt.Print(s.Text())
	// Output:
	// - Valkek -> pear
	// - Felbrov -> cat
	// Q: Look up Valkek.
	// A: The value of Valkek is pear
}

// An answer stands in its context, and the same index gives the same text.
func TestAnswersStandInTheContext(t *testing.T) {
	for _, heldOut := range []bool{false, true} {
		for i := range uint64(600) {
			c := tasks.Config{Seed: 7, Bytes: int(50 + 7*i), Questions: 1 + int(i%5), HeldOut: heldOut, Style: tasks.Value}
			full := c
			full.Style = []tasks.Style{tasks.Thing, tasks.Sentence}[i%2]
			s := tasks.Make(c, i)
			if again := tasks.Make(c, i); again.Text() != s.Text() {
				t.Fatalf("sample %d differs when made again", i)
			}
			for q := range c.Questions {
				prompt, answer, ok := s.Ask(q)
				if !ok || answer == "" {
					t.Fatalf("sample %d (%s, %s) has no answer %d:\n%s", i, s.Kind, s.Format, q, s.Text())
				}
				if s.Format != tasks.Plain {
					inner, begins := strings.CutPrefix(answer, "The answer is ")
					inner, ends := strings.CutSuffix(inner, ".")
					if !begins || !ends {
						t.Fatalf("sample %d: the answer is %q", i, answer)
					}
					answer = inner
				}
				stated, _, sum := strings.Cut(answer, " ")
				if s.Kind == tasks.Arithmetic && sum {
					answer = stated
				}
				if !strings.Contains(prompt, answer) {
					t.Errorf("sample %d (%s, %s): %q is not in\n%s", i, s.Kind, s.Format, answer, prompt)
				}
			}
			// Answers that say of what, too, are about the same questions and end alike.
			long := tasks.Make(full, i)
			_, short, _ := s.Ask(0)
			asked, answer, _ := long.Ask(0)
			end := short[strings.LastIndex(short, " ")+1:]
			if prompt, _, _ := s.Ask(0); asked != prompt || !strings.HasSuffix(answer, end) || len(answer) <= len(short) {
				t.Errorf("sample %d: %q instead of %q", i, answer, short)
			}
			if _, _, ok := s.Ask(c.Questions); ok {
				t.Errorf("sample %d has more than %d answers", i, c.Questions)
			}
		}
	}
}

// No name that judging uses is ever trained on.
func TestHeldOutNamesAreNotTrained(t *testing.T) {
	words := func(heldOut bool) map[string]bool {
		out := map[string]bool{}
		for i := range uint64(300) {
			s := tasks.Make(tasks.Config{Seed: 3, Kinds: []tasks.Kind{tasks.KeyValue}, Formats: []tasks.Format{tasks.Plain}, HeldOut: heldOut}, i)
			context, _, _ := strings.Cut(s.Text(), "\nQ: ")
			for line := range strings.Lines(context) {
				out[strings.Trim(strings.Fields(line)[1], ":")] = true
			}
		}
		return out
	}
	trained := words(false)
	for w := range words(true) {
		if trained[w] {
			t.Errorf("%q is trained on and held out", w)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	for _, c := range []tasks.Config{{Kinds: []tasks.Kind{"riddle"}}, {Formats: []tasks.Format{"poem"}}, {Bytes: -1}, {Questions: -1}, {Style: "verse"}} {
		if c.Check() == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
	if err := (tasks.Config{}).Check(); err != nil {
		t.Error(err)
	}
}

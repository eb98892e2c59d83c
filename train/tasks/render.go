package tasks

import (
	"math/rand/v2"
	"strings"
)

// The markup of ChatML.
const (
	turnBegin = "<|im_start|>"
	turnEnd   = "<|im_end|>"
)

// Control are the control tokens that samples are written with.
var Control = []string{"<|endoftext|>", turnBegin, turnEnd}

var systems = []string{
	"You answer from the given text.", "Answer with as few words as possible.", "You are a helpful assistant.",
	"Use only what the text says.", "Answer briefly.",
}

var leads = []string{"", "", "Read this.\n\n", "Here are my notes.\n\n", "Context:\n", "Please remember:\n"}

func render(r *rand.Rand, f Format, context string, asked []question) []Part {
	var out []Part
	put := func(s string) {
		if n := len(out); n > 0 && !out[n-1].Answer {
			out[n-1].Text += s
			return
		}
		out = append(out, Part{Text: s})
	}
	if f == Plain {
		put(context + "\n")
		for _, q := range asked {
			put("Q: " + q.ask + "\nA:")
			about := ""
			switch {
			case q.of != "":
				about = "The " + q.of + " of " + q.thing + " is "
			case q.thing != "":
				about = q.thing + ": "
			}
			out = append(out, Part{" " + about + q.answer + "\n", true})
		}
		return out
	}
	turn := func(role, s string) { put(turnBegin + role + "\n" + s + turnEnd + "\n") }
	if r.IntN(2) == 0 {
		turn("system", pick(r, systems))
	}
	first := asked[0].ask
	switch {
	case f == Tool:
		turn("user", first)
		turn("tool", context)
	case r.IntN(4) == 0:
		turn("user", first+"\n\n"+context)
	default:
		between := "\n\n"
		if strings.HasSuffix(context, ".") {
			between = pick(r, []string{"\n\n", "\n", " "})
		}
		turn("user", pick(r, leads)+context+between+first)
	}
	for i, q := range asked {
		if i > 0 {
			turn("user", q.ask)
		}
		put(turnBegin + "assistant\n")
		about := "answer"
		switch {
		case q.of != "":
			about = q.of + " of " + q.thing
		case q.thing != "":
			about = "answer for " + q.thing
		}
		out = append(out, Part{"The " + about + " is " + q.answer + "." + turnEnd + "\n", true})
	}
	return out
}

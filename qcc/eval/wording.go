package eval

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"samebit/token"
	"samebit/train/tasks"
)

// Wording is how the tasks of [Worded] are put.
type Wording string

const (
	English  Wording = "english"  // for language models
	Register Wording = "register" // in the sentences that the models in the program were trained on, with names that they were not
)

// Wordings are all of them.
var Wordings = []Wording{English, Register}

// wording is the words of a Wording; %S stands for a name and %V for what it has.
type wording struct {
	begin        string // a token before everything; "": none
	opening      string
	tell, ask    string // that a name has a number
	set, link    string // that a name is a number, or leads to another name
	follow       string // asks where a name leads
	next, last   string // goes on to the next name, and to the number
	words        string // asks for the word that occurs most
	low, numbers int    // the smallest number, and how many there are
	names        func(r *rand.Rand, n int) []string
	most         int                         // names that differ: of the 2,042 that tasks.Names draws from, it finds so many
	alike        func(r *rand.Rand) []string // four names
	aside        func(r *rand.Rand) string
}

var wordings = map[Wording]*wording{
	English: {
		opening: "Here are some notes.\n",
		tell:    "The code of the %S is %V.", ask: "\nQuestion: What is the code of the %S?\nAnswer: The code of the %S is",
		set: "VAR %S = %V.", link: "VAR %S = VAR %V.", follow: "\nQuestion: What is the number of VAR %S?\nAnswer: VAR %S = VAR", next: " = VAR", last: " =",
		words: "\nQuestion: Which word occurs most often in the list?\nAnswer: The word is",
		low:   1000, numbers: 9000,
		names: things, most: len(nouns) * (1 + len(colours)), alike: coloured, aside: func(r *rand.Rand) string { return asides[r.IntN(len(asides))] },
	},
	Register: {
		begin: "<|endoftext|>", opening: "Notes. ",
		tell: "The code of %S is %V.", ask: "\nQ: What is the code of %S?\nA: The code of %S is",
		set: "The code of %S is %V.", link: "The partner of %S is %V.", follow: "\nQ: What is the partner of %S?\nA: The partner of %S is",
		next: "\nQ: What is the partner of %S?\nA: The partner of %S is", last: "\nQ: What is the code of %S?\nA: The code of %S is",
		words: "\nQ: Which name occurs most often?\nA: The name is",
		low:   100, numbers: 900,
		names: func(r *rand.Rand, n int) []string { return tasks.Names(r, n, true) }, most: 1500, alike: syllable, aside: tasks.Filler,
	},
}

var nouns = strings.Fields("apple river stone cloud tiger lamp garden mirror pencil bridge castle forest guitar hammer island jacket kettle ladder magnet needle ocean pepper quilt rocket saddle temple umbrella violin window anchor basket candle dragon engine feather glove helmet jungle kitten lemon monkey napkin orange pillow rabbit spider tunnel walnut")

var colours = strings.Fields("red blue green white black silver golden purple")

// things are different nouns, with colours when there are no more.
func things(r *rand.Rand, n int) []string {
	p, out := r.Perm(len(nouns)), make([]string, n)
	for i := range out {
		if out[i] = nouns[p[i%len(p)]]; i >= len(p) {
			out[i] = colours[(i/len(p)-1)%len(colours)] + " " + out[i]
		}
	}
	return out
}

// coloured is a thing in four colours.
func coloured(r *rand.Rand) []string {
	thing := things(r, 1)[0]
	out := make([]string, 4)
	for i, c := range r.Perm(len(colours))[:4] {
		out[i] = colours[c] + " " + thing
	}
	return out
}

// syllable are four names that begin with the same one.
func syllable(r *rand.Rand) []string {
	groups := map[string][]string{}
	for {
		for _, name := range tasks.Names(r, 100, true) {
			begin := name[:3]
			if g := groups[begin]; !slices.Contains(g, name) {
				if groups[begin] = append(g, name); len(g) == 3 {
					return groups[begin]
				}
			}
		}
	}
}

var asides = []string{
	"The morning was quiet and cold.", "Rain is expected later in the week.", "Nobody knows why the shop closed.", "That was a long time ago.",
	"The report was filed in time for the meeting.", "Much has been written about the old town.", "The weather stayed fine all day.", "More news will follow soon.",
	"The road is open again after the repairs.", "Most visitors come in spring.", "The old map shows the path very well.", "It was checked twice by the clerk.",
	"A letter arrived at noon.", "Children played near the water.", "The train was late once more.", "There is little else to say about it.",
}

func say(phrase, name, value string) string {
	return strings.NewReplacer("%S", name, "%V", value).Replace(phrase)
}

// item makes an item. The same arguments give the same one.
func (w *wording) item(tok *token.Tokenizer, c cell, questions int, seed, index uint64) (item, error) {
	var begin []int32
	if w.begin != "" {
		if begin = []int32{tok.ID(w.begin)}; begin[0] < 0 {
			return item{}, fmt.Errorf("eval: the vocabulary has no token %s: take the wording %s", w.begin, English)
		}
	}
	r := rand.New(rand.NewPCG(seed, index))
	if c.task == Words {
		lines, asked := w.list(tok, r, c.length)
		return join(tok, begin, "Count the words of this list.\n"+strings.Join(lines, " "), asked), nil
	}
	lines, asked := w.facts(r, c, questions)
	size := len(tok.EncodePlain(nil, strings.Join(lines, " ")))
	for {
		line := w.aside(r)
		if size += len(tok.EncodePlain(nil, " "+line)); size > c.length-8 {
			break
		}
		// chains keep their order
		lines = slices.Insert(lines, r.IntN(len(lines)+1), line)
	}
	if c.task != Variables {
		r.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
	}
	return join(tok, begin, w.opening+strings.Join(lines, " "), asked), nil
}

// facts are the sentences that are asked for, and the questions.
func (w *wording) facts(r *rand.Rand, c cell, questions int) (lines []string, asked []dialogue) {
	number := func() string { return strconv.Itoa(w.low + r.IntN(w.numbers)) }
	var names []string
	switch c.task {
	case Variables:
		n, v := w.names(r, 3), number()
		lines = append(lines, say(w.set, n[0], v), say(w.link, n[1], n[0]), say(w.link, n[2], n[1]))
		return lines, []dialogue{{say(w.follow, n[2], ""), " " + n[1], say(w.next, n[1], ""), " " + n[0], say(w.last, n[0], ""), " " + v}}
	case Recall:
		names = w.names(r, c.pairs)
	case Single:
		names = w.names(r, 1)
	case MultiKey:
		names = w.alike(r)
	}
	for _, i := range r.Perm(len(names)) {
		v := number()
		lines = append(lines, say(w.tell, names[i], v))
		if len(asked) < questions {
			asked = append(asked, dialogue{say(w.ask, names[i], ""), " " + v})
		}
	}
	return lines, asked
}

// list is a list of words, every fourth of them the same.
func (w *wording) list(tok *token.Tokenizer, r *rand.Rand, length int) (lines []string, asked []dialogue) {
	names := w.names(r, 13)
	for size := 0; ; {
		word := names[1+r.IntN(12)]
		if len(lines)%4 == 0 {
			word = names[0]
		}
		if size += len(tok.EncodePlain(nil, " "+word)); size > length-8 {
			return lines, []dialogue{{w.words, " " + names[0]}}
		}
		lines = append(lines, word)
	}
}

package tasks

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Names are one syllable of firsts and one of seconds, so that no name is a word and
// there are many of few pieces. They are written with a capital and after a space,
// wherever they stand, so that a vocabulary cuts a name the same way each time.
var (
	firsts  = syllables("B D F G H J K L M N P R S T V Z", "al en ir or um ax el on")
	seconds = syllables("b d f g k l m n p r t v z br dr gr", "as ek it os un ar ig ov")
	sorts   = strings.Fields("station ship robot engine valley island bridge garden mill harbour tower")
)

func syllables(onsets, rimes string) (all []string) {
	for _, o := range strings.Fields(onsets) {
		for _, r := range strings.Fields(rimes) {
			all = append(all, o+r)
		}
	}
	return all
}

// Lexicon is a text of the pieces that samples are made of: values and numbers once,
// the syllables of names more often, so that they are put together before parts of
// words that look like two of them. A vocabulary that has them as tokens leaves a model less
// to put together.
func Lexicon() string {
	var b strings.Builder
	for range 4 {
		for _, s := range firsts {
			b.WriteString(" " + s)
		}
		for _, s := range seconds {
			b.WriteString("\n" + s) // no space before it, as in a name
		}
	}
	for _, s := range append(sorts, countables...) {
		b.WriteString(" " + s)
	}
	for _, a := range attributes {
		b.WriteString(" " + a.column)
		for _, v := range a.values {
			b.WriteString(" " + v)
		}
	}
	for n := lowest; n <= highest; n++ {
		fmt.Fprintf(&b, " %d", n)
	}
	return b.String() + "\n"
}

// held says whether a name is kept for judging: one in eight is.
func held(name string) bool {
	h := fnv.New32a()
	h.Write([]byte(name))
	return h.Sum32()%8 == 0
}

// world makes the things of one sample.
type world struct {
	r       *rand.Rand
	heldOut bool
	used    map[string]bool

	backward bool // facts are told with the value before the thing
}

// name makes a name that the sample does not have yet, while there are any.
func (w *world) name() string {
	for tries := 0; ; tries++ {
		s := pick(w.r, firsts) + pick(w.r, seconds)
		if held(s) == w.heldOut && (!w.used[s] || tries > 1000) {
			w.used[s] = true
			return s
		}
	}
}

// Names draws n names; held out ones are those that training never sees. They differ as
// long as there are others: some 1,500 of those held out.
func Names(r *rand.Rand, n int, heldOut bool) []string {
	w := &world{r: r, heldOut: heldOut, used: map[string]bool{}}
	out := make([]string, n)
	for i := range out {
		out[i] = w.name()
	}
	return out
}

// Filler draws a sentence that nobody asks about.
func Filler(r *rand.Rand) string { return pick(r, filler) }

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// thing is a name as texts write it, half of the time with what it is.
func (w *world) thing() string {
	if w.r.IntN(2) == 0 {
		return w.name()
	}
	return pick(w.r, sorts) + " " + w.name()
}

// attribute is a property of things. %S stands for the thing, %V for the value.
type attribute struct {
	column string // name in tables and keys
	values []string
	number bool // values are numbers instead
	tell   []string
	ask    []string
}

// Numbers that are values have three digits, one piece to vocabularies that cut digits
// by three.
const lowest, highest = 100, 999

// phrases are those that tell it, or those of them that begin with the value.
func (a *attribute) phrases(backward bool) []string {
	if !backward {
		return a.tell
	}
	var out []string
	for _, t := range a.tell {
		if strings.Index(t, "%V") < strings.Index(t, "%S") {
			out = append(out, t)
		}
	}
	return out
}

func (a *attribute) value(r *rand.Rand) string {
	if a.number {
		return strconv.Itoa(lowest + r.IntN(highest-lowest+1))
	}
	return pick(r, a.values)
}

var attributes = []attribute{
	{column: "colour", values: strings.Fields("red blue green yellow black white grey brown purple orange pink silver golden teal violet crimson amber ivory"),
		tell: []string{"%S is %V.", "The colour of %S is %V.", "They painted %S %V.", "The walls of %S are %V.", "Seen from afar, %S looks %V.", "Somebody chose %V as the colour of %S."},
		ask:  []string{"What colour is %S?", "What is the colour of %S?", "Which colour does %S have?", "Name the colour of %S."}},
	{column: "code", number: true,
		tell: []string{"The code of %S is %V.", "%S has the code %V.", "To open %S, type %V.", "One enters %S with the code %V.", "Remember the code of %S: %V."},
		ask:  []string{"What is the code of %S?", "Which code opens %S?", "Give the code of %S.", "What code does %S have?"}},
	{column: "animal", values: strings.Fields("fox owl bear wolf otter hare eagle horse goat cat dog crow seal whale lynx badger swan mouse"),
		tell: []string{"A %V lives at %S.", "The animal of %S is the %V.", "%S keeps a %V.", "On the flag of %S there is a %V.", "Everybody at %S likes the %V."},
		ask:  []string{"Which animal belongs to %S?", "What is the animal of %S?", "What animal does %S keep?", "Name the animal of %S."}},
	{column: "metal", values: strings.Fields("iron copper tin zinc nickel lead steel bronze brass gold platinum titanium cobalt chrome"),
		tell: []string{"%S is built of %V.", "The metal of %S is %V.", "They used %V to build %S.", "The gates of %S are made of %V.", "For %S they bought much %V."},
		ask:  []string{"Which metal is %S built of?", "What is the metal of %S?", "What metal was used for %S?", "Name the metal of %S."}},
	{column: "fruit", values: strings.Fields("apple pear plum cherry lemon lime peach grape fig melon mango banana quince apricot"),
		tell: []string{"%S sells %V juice.", "The fruit of %S is the %V.", "At %S one eats %V every day.", "The smell of %V fills %S.", "%S is known for its %V cake."},
		ask:  []string{"Which fruit belongs to %S?", "What is the fruit of %S?", "What fruit is %S known for?", "Name the fruit of %S."}},
	{column: "day", values: strings.Fields("Monday Tuesday Wednesday Thursday Friday Saturday Sunday"),
		tell: []string{"%S opens on %V.", "The day of %S is %V.", "Every %V there is a market at %S.", "%S rests until %V.", "Visit %S on %V."},
		ask:  []string{"Which day belongs to %S?", "What is the day of %S?", "On which day should one visit %S?", "Name the day of %S."}},
	{column: "tool", values: strings.Fields("hammer saw drill chisel wrench rope ladder lamp compass needle shovel axe anvil brush"),
		tell: []string{"The tool of %S is the %V.", "%S needs a %V.", "Take a %V when you go to %S.", "At %S somebody left a %V.", "%S was repaired with a %V."},
		ask:  []string{"Which tool belongs to %S?", "What is the tool of %S?", "What tool does %S need?", "Name the tool of %S."}},
	{column: "partner", // the value is another thing's name
		tell: []string{"The partner of %S is %V.", "%S works with %V.", "They saw %S together with %V.", "%S sends its letters to %V.", "The road from %S leads to %V."},
		ask:  []string{"What is the partner of %S?", "Who is the partner of %S?", "Name the partner of %S.", "Which partner does %S have?"}},
}

// openings come before texts.
var openings = []string{"Notes.", "What is known:", "Here are the facts.", "From the register:", "Some remarks.", "The list:", "As told:"}

// filler are sentences that nobody asks about.
var filler = []string{
	"The morning was quiet.", "Rain is expected later.", "Nobody knows why.", "That was long ago.", "The report was filed in time.",
	"Much has been written about it.", "The weather stayed fine.", "This has not changed since.", "More will follow.", "There is little else to say.",
	"The road is open again.", "Most visitors come in spring.", "The old map shows it well.", "It was checked twice.", "A letter arrived at noon.",
}

// say fills a phrase in.
func say(phrase, thing, value string) string {
	if value != "" && strings.ContainsRune("aeiou", rune(value[0])) {
		phrase = strings.NewReplacer("a %V", "an %V", "A %V", "An %V").Replace(phrase)
	}
	return capital(strings.NewReplacer("%S", thing, "%V", value).Replace(phrase))
}

// pickValue draws a value; a partner is a thing of its own.
func (w *world) pickValue(a *attribute) string {
	if a.values == nil && !a.number {
		return w.name()
	}
	return a.value(w.r)
}

package tasks

import (
	"fmt"
	"strings"
)

// fact is a value of a thing's attribute.
type fact struct {
	thing string
	attr  *attribute
	value string
}

func (w *world) ask(f fact) question {
	return question{ask: say(pick(w.r, f.attr.ask), f.thing, ""), answer: f.value, of: f.attr.column, thing: f.thing}
}

func (w *world) tell(f fact) string {
	return say(pick(w.r, f.attr.phrases(w.backward)), f.thing, f.value)
}

// choose draws n facts to ask about, different ones while there are any.
func (w *world) choose(facts []fact, n int) []question {
	var out []question
	for len(out) < n {
		for _, i := range w.r.Perm(len(facts)) {
			if len(out) < n {
				out = append(out, w.ask(facts[i]))
			}
		}
	}
	return out
}

// about makes one to three facts about a new thing.
func (w *world) about() []fact {
	thing := w.thing()
	var out []fact
	for len(out) == 0 {
		for _, i := range w.r.Perm(len(attributes))[:1+w.r.IntN(3)] {
			if a := &attributes[i]; len(a.phrases(w.backward)) > 0 {
				out = append(out, fact{thing, a, w.pickValue(a)})
			}
		}
	}
	return out
}

// lines are sentences of bytes bytes, about, that tell at least so many facts; after
// one thing in rare there is one that nobody asks about.
func (w *world) lines(bytes, least, rare int) (lines []string, facts []fact) {
	size := 0
	put := func(line string) {
		lines = append(lines, line)
		size += len(line) + 1
	}
	for size < bytes || len(facts) < least {
		for _, f := range w.about() {
			facts = append(facts, f)
			put(w.tell(f))
		}
		if w.r.IntN(rare) == 0 {
			put(pick(w.r, filler))
		}
	}
	return lines, facts
}

func (w *world) facts(bytes, questions int) (string, []question) {
	lines, facts := w.lines(bytes, 2, 3)
	w.r.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
	return pick(w.r, openings) + " " + strings.Join(lines, " "), w.choose(facts, questions)
}

func (w *world) documents(bytes, questions int) (string, []question) {
	n := 2 + w.r.IntN(3)
	var b strings.Builder
	var facts []fact
	for d := range n {
		if d > 0 {
			b.WriteString("\n\n")
		}
		body, fs := w.document(bytes / n)
		fmt.Fprintf(&b, "Document %d, %s. %s", d+1, w.name(), body)
		facts = append(facts, fs...)
	}
	return b.String(), w.choose(facts, questions)
}

func (w *world) document(bytes int) (string, []fact) {
	lines, facts := w.lines(bytes, 1, 2)
	return strings.Join(lines, " "), facts
}

func (w *world) keyValue(bytes, questions int) (string, []question) {
	begin, join := pick(w.r, []string{"- ", "* ", "# ", "Key "}), pick(w.r, []string{" = ", ": ", " -> ", " is "})
	kind := w.r.IntN(3)
	var b strings.Builder
	var keys, values []string
	for b.Len() < bytes || len(keys) < 2 {
		key := w.name()
		value := w.name()
		switch kind {
		case 0:
			value = attributes[1].value(w.r)
		case 1:
			value = pick(w.r, attributes[pick(w.r, []int{0, 2, 3, 4})].values)
		}
		fmt.Fprintf(&b, "%s%s%s%s\n", begin, key, join, value)
		keys, values = append(keys, key), append(values, value)
	}
	var asked []question
	for _, i := range w.indices(len(keys), questions) {
		phrase := pick(w.r, []string{"What is the value of %S?", "And %S?", "Look up %S.", "Which value does %S have?"})
		asked = append(asked, question{ask: strings.ReplaceAll(phrase, "%S", keys[i]), answer: values[i], of: "value", thing: keys[i]})
	}
	return strings.TrimSuffix(b.String(), "\n"), asked
}

// indices draws k of n, different ones while there are any.
func (w *world) indices(n, k int) []int {
	var out []int
	for len(out) < k {
		out = append(out, w.r.Perm(n)...)
	}
	return out[:k]
}

func (w *world) table(bytes, questions int) (string, []question) {
	columns := w.r.Perm(len(attributes))[:2+w.r.IntN(3)]
	var b strings.Builder
	b.WriteString("| name |")
	for _, c := range columns {
		fmt.Fprintf(&b, " %s |", attributes[c].column)
	}
	b.WriteString("\n")
	var facts []fact
	for b.Len() < bytes || len(facts) < 2*len(columns) {
		thing := w.name()
		fmt.Fprintf(&b, "| %s |", thing)
		for _, c := range columns {
			f := fact{thing, &attributes[c], w.pickValue(&attributes[c])}
			fmt.Fprintf(&b, " %s |", f.value)
			facts = append(facts, f)
		}
		b.WriteString("\n")
	}
	return strings.TrimSuffix(b.String(), "\n"), w.choose(facts, questions)
}

var countables = strings.Fields("lamps boxes ropes books wheels barrels coins stones cups doors")

func (w *world) arithmetic(bytes, questions int) (string, []question) {
	goods := pick(w.r, countables)
	var things []string
	var counts []int
	var lines []string
	for size := 0; size < bytes || len(things) < 2; {
		t, n := w.thing(), 2+w.r.IntN(28)
		phrase := pick(w.r, []string{"%S has %V %G.", "%S keeps %V %G.", "%S counts %V %G.", "At %S one finds %V %G."})
		line := strings.ReplaceAll(say(phrase, t, fmt.Sprint(n)), "%G", goods)
		things, counts, lines = append(things, t), append(counts, n), append(lines, line)
		size += len(line) + 1
	}
	var asked []question
	for range questions {
		p := w.r.Perm(len(things))
		a, b := p[0], p[1]
		switch w.r.IntN(3) {
		case 0:
			asked = append(asked, question{ask: fmt.Sprintf("How many %s does %s have?", goods, things[a]), answer: fmt.Sprint(counts[a]), of: "number", thing: things[a]})
		case 1:
			sum := counts[a] + counts[b]
			asked = append(asked, question{ask: fmt.Sprintf("How many %s do %s and %s have together?", goods, things[a], things[b]),
				answer: fmt.Sprintf("%d + %d = %d", counts[a], counts[b], sum), worked: fmt.Sprintf("%s %d + %s %d = %d", things[a], counts[a], things[b], counts[b], sum)})
		default:
			gone := 1 + w.r.IntN(counts[a]-1)
			left := counts[a] - gone
			asked = append(asked, question{ask: fmt.Sprintf("If %s gives %d %s away, how many %s are left?", things[a], gone, goods, goods),
				answer: fmt.Sprintf("%d - %d = %d", counts[a], gone, left), worked: fmt.Sprintf("%s %d - %d = %d", things[a], counts[a], gone, left)})
		}
	}
	return pick(w.r, openings) + " " + strings.Join(lines, " "), asked
}

func (w *world) again(bytes, questions int) (string, []question) {
	var b strings.Builder
	for b.Len() < max(8, bytes/(1+questions)) {
		if b.Len() > 0 {
			b.WriteString(pick(w.r, []string{" ", " ", ", "}))
		}
		switch w.r.IntN(3) {
		case 0:
			b.WriteString(attributes[1].value(w.r))
		case 1:
			b.WriteString(pick(w.r, attributes[pick(w.r, []int{0, 2, 3, 4})].values))
		default:
			b.WriteString(w.name())
		}
	}
	asked := make([]question, questions)
	for i := range asked {
		asked[i] = question{ask: pick(w.r, []string{"Say it again.", "Repeat that.", "What was said?"}), answer: b.String()}
	}
	return pick(w.r, openings) + " " + b.String(), asked
}

// pairs are names with numbers that stand right after them, or nearly; so do answers.
// Each text and answer is a step from repeating to looking up.
func (w *world) pairs(bytes, questions int) (string, []question) {
	begin := pick(w.r, []string{"- ", "* ", "# ", "Key "})
	join := pick(w.r, []string{" ", " ", " is ", " = ", ": ", " -> "})
	var b strings.Builder
	var keys, values []string
	for b.Len() < bytes || len(keys) < 2 {
		key, value := w.name(), attributes[1].value(w.r)
		fmt.Fprintf(&b, "%s%s%s%s\n", begin, key, join, value)
		keys, values = append(keys, key), append(values, value)
	}
	var asked []question
	for _, i := range w.indices(len(keys), questions) {
		q := question{ask: "Look up " + keys[i] + ".", answer: values[i], of: "value", thing: keys[i]}
		if w.r.IntN(2) == 0 {
			q = question{ask: q.ask, answer: keys[i] + " " + values[i]}
		}
		asked = append(asked, q)
	}
	return strings.TrimSuffix(b.String(), "\n"), asked
}

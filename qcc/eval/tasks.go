package eval

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"samebit/token"
	"samebit/train/tasks"
)

// Task is a kind of question. The ones of package train/tasks, keyvalue, facts,
// documents and table, have the form that the models in the program know; the others
// are plain English for language models.
type Task string

// The tasks in English, after MQAR and RULER.
const (
	Recall    Task = "recall"    // so many pairs of names and numbers, any of them asked for
	Single    Task = "single"    // one such pair among other sentences
	MultiKey  Task = "multikey"  // four pairs with like names, one of them asked for
	Variables Task = "variables" // a chain of three assignments
	Words     Task = "words"     // the word that occurs most
)

// Text is not a task: the name of held-out text in results.
const Text Task = "text"

// Forms are the tasks that models in the program are asked, English those for others.
var (
	Forms   = []Task{Task(tasks.KeyValue), Task(tasks.Facts), Task(tasks.Documents), Task(tasks.Table)}
	English = []Task{Recall, Single, MultiKey, Variables, Words}
)

// question is what follows a context: the answer is right if every token of it is the
// model's first choice.
type question struct{ ask, answer []int32 }

// item is a context with questions about it.
type item struct {
	context   []int32
	questions []question
}

// makeItem makes an item of about so many tokens; pairs count in recall.
func makeItem(tok *token.Tokenizer, t Task, length, pairs, questions int, seed, index uint64) (item, error) {
	if slices.Contains(Forms, t) {
		return formed(tok, tasks.Kind(t), length, questions, seed, index)
	}
	return english(tok, t, length, pairs, questions, seed, index), nil
}

// formed is a sample of train/tasks with names that no training has seen.
func formed(tok *token.Tokenizer, kind tasks.Kind, length, questions int, seed, index uint64) (item, error) {
	begin := tok.ID("<|endoftext|>")
	if begin < 0 {
		return item{}, fmt.Errorf("eval: the vocabulary has no token <|endoftext|>: ask this model the tasks in English: %v", English)
	}
	for bytes := 3 * length; ; bytes = bytes * 9 / 10 {
		s := tasks.Make(tasks.Config{Seed: seed, Kinds: []tasks.Kind{kind}, Formats: []tasks.Format{tasks.Plain}, Bytes: bytes, Questions: questions, HeldOut: true}, index)
		context := s.Parts[0].Text
		at := strings.LastIndex(context, "Q: ")
		var texts, answers []string
		for i := 0; i+1 < len(s.Parts); i += 2 {
			texts, answers = append(texts, s.Parts[i].Text), append(answers, s.Parts[i+1].Text)
		}
		texts[0] = context[at:]
		it := join(tok, []int32{begin}, context[:at], texts, answers)
		if len(it.context) <= length || bytes < 64 {
			return it, nil
		}
	}
}

// join cuts what all questions have in common off their tokens, so that tokens that
// cross the border stay whole.
func join(tok *token.Tokenizer, begin []int32, context string, asks, answers []string) item {
	var it item
	whole := make([][]int32, len(asks))
	for i := range asks {
		whole[i] = tok.Encode(slices.Clone(begin), context+asks[i])
		it.questions = append(it.questions, question{answer: tok.Encode(nil, answers[i])})
	}
	n := len(tok.Encode(slices.Clone(begin), context)) - 1
	for _, w := range whole {
		for n > len(w)-2 || !slices.Equal(w[:n], whole[0][:n]) {
			n--
		}
	}
	it.context = whole[0][:n]
	for i, w := range whole {
		it.questions[i].ask = w[n:]
	}
	return it
}

var things = strings.Fields("apple river stone cloud tiger lamp garden mirror pencil bridge castle forest guitar hammer island jacket kettle ladder magnet needle ocean pepper quilt rocket saddle temple umbrella violin window anchor basket candle dragon engine feather glove helmet jungle kitten lemon monkey napkin orange pillow rabbit spider tunnel walnut")

var colours = strings.Fields("red blue green white black silver golden purple")

var asides = []string{
	"The morning was quiet and cold.", "Rain is expected later in the week.", "Nobody knows why the shop closed.", "That was a long time ago.",
	"The report was filed in time for the meeting.", "Much has been written about the old town.", "The weather stayed fine all day.", "More news will follow soon.",
	"The road is open again after the repairs.", "Most visitors come in spring.", "The old map shows the path very well.", "It was checked twice by the clerk.",
	"A letter arrived at noon.", "Children played near the water.", "The train was late once more.", "There is little else to say about it.",
}

// english makes items in plain English.
func english(tok *token.Tokenizer, t Task, length, pairs, questions int, seed, index uint64) item {
	r := rand.New(rand.NewPCG(seed, index))
	var lines, asks, answers []string
	begin := "Here are some notes.\n"
	number := func() string { return fmt.Sprint(1000 + r.IntN(9000)) }
	code := func(names []string) {
		for _, i := range r.Perm(len(names)) {
			v := number()
			lines = append(lines, fmt.Sprintf("The code of the %s is %s.", names[i], v))
			if len(asks) < questions {
				asks = append(asks, fmt.Sprintf("Question: What is the code of the %s?\nAnswer: The code of the %s is", names[i], names[i]))
				answers = append(answers, " "+v)
			}
		}
	}
	switch p := r.Perm(len(things)); t {
	case Recall:
		var names []string
		for i := range pairs {
			n := things[p[i%len(p)]]
			if i >= len(p) {
				n = colours[(i/len(p)-1)%len(colours)] + " " + n
			}
			names = append(names, n)
		}
		code(names)
	case Single:
		code([]string{things[p[0]]})
	case MultiKey:
		c := r.Perm(len(colours))
		var names []string
		for i := range 4 {
			names = append(names, colours[c[i]]+" "+things[p[0]])
		}
		code(names)
	case Variables:
		v := number()
		a, b, c := things[p[0]], things[p[1]], things[p[2]]
		lines = append(lines, fmt.Sprintf("VAR %s = %s.", a, v), fmt.Sprintf("VAR %s = VAR %s.", b, a), fmt.Sprintf("VAR %s = VAR %s.", c, b))
		asks, answers = append(asks, fmt.Sprintf("Question: What is the number of VAR %s, which is VAR %s?\nAnswer: VAR %s = VAR %s = VAR %s =", c, b, c, b, a)), append(answers, " "+v)
	case Words:
		begin = "Count the words of this list.\n"
		top := things[p[0]]
		for n, size := 0, 0; ; n++ {
			w := things[p[1+r.IntN(12)]]
			if n%4 == 0 {
				w = top
			}
			if size += len(tok.EncodePlain(nil, " "+w)); size > length-8 {
				break
			}
			lines = append(lines, w)
		}
		asks, answers = append(asks, "Question: Which word occurs most often in the list?\nAnswer: The word is"), append(answers, " "+top)
	}
	if t != Words {
		size := len(tok.EncodePlain(nil, strings.Join(lines, " ")))
		for {
			line := asides[r.IntN(len(asides))]
			if size += len(tok.EncodePlain(nil, " "+line)); size > length-8 {
				break
			}
			// chains keep their order
			at := r.IntN(len(lines) + 1)
			lines = slices.Insert(lines, at, line)
		}
		if t != Variables {
			r.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
		}
	}
	for i := range asks {
		asks[i] = "\n" + asks[i]
	}
	return join(tok, nil, begin+strings.Join(lines, " "), asks, answers)
}

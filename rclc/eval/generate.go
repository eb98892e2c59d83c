package eval

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"samebit/token"
)

// GenerateConfig says what questions Generate makes. The zero value makes one
// case of three documents of about 500 tokens that asks for one fact.
type GenerateConfig struct {
	Cases     int    // 0 means 1
	Documents int    // per case; 0 means 3
	Tokens    int    // length of each document, at most; 0 means 500
	TwoFacts  int    // of the cases, so many ask for two facts of different documents; spread evenly
	Seed      uint64 // the same seed gives the same cases
}

// attribute is one thing that records say of an object.
type attribute struct {
	says   string   // with the object and the value
	asks   string   // with the object
	names  string   // its plural
	values []string // nil: four digits
}

var (
	kinds = []string{"station", "machine", "project", "vessel", "sensor", "depot"}

	attributes = []attribute{
		{"The access code of %s is %s.", "What is the access code of %s?", "access codes", nil},
		{"The colour of %s is %s.", "What is the colour of %s?", "colours", []string{
			"amber", "crimson", "turquoise", "ivory", "violet", "orange", "silver", "green", "black", "white", "yellow", "purple", "brown", "pink", "grey", "blue"}},
		{"The home city of %s is %s.", "What is the home city of %s?", "home cities", []string{
			"Lisbon", "Oslo", "Nairobi", "Lima", "Toronto", "Hanoi", "Dublin", "Prague", "Cairo", "Quito", "Riga", "Perth", "Osaka", "Denver", "Vienna", "Athens"}},
		{"The owner of %s is team %s.", "Which team is the owner of %s?", "owners", []string{
			"Basalt", "Cedar", "Falcon", "Granite", "Harbor", "Indigo", "Juniper", "Kestrel", "Lantern", "Maple", "Nimbus", "Orchid", "Pebble", "Quartz", "Raven", "Saffron"}},
		{"The main material of %s is %s.", "What is the main material of %s?", "main materials", []string{
			"copper", "bamboo", "titanium", "glass", "rubber", "marble", "steel", "ceramic", "leather", "cotton", "wool", "zinc", "oak", "plastic", "clay", "tin"}},
		{"The serial number of %s is %s.", "What is the serial number of %s?", "serial numbers", nil},
		{"The launch month of %s is %s.", "What is the launch month of %s?", "launch months", []string{
			"January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"}},
		{"The fuel of %s is %s.", "What is the fuel of %s?", "fuels", []string{
			"hydrogen", "diesel", "methane", "coal", "ethanol", "propane", "kerosene", "charcoal", "steam", "uranium", "peat", "biogas"}},
		{"The password of %s is %s.", "What is the password of %s?", "passwords", []string{
			"butterfly", "mushroom", "umbrella", "volcano", "pumpkin", "notebook", "elephant", "rainbow", "pineapple", "football", "sandwich", "telescope", "bicycle", "blanket", "calendar", "dinosaur"}},
		{"The cargo of %s is %s.", "What is the cargo of %s?", "cargoes", []string{
			"coffee", "bananas", "cement", "timber", "sugar", "paper", "fish", "salt", "rice", "wheat", "cheese", "honey", "tea", "flour", "sand", "bricks"}},
	}

	first = strings.Fields("Quiet Northern Rapid Hidden Gentle Lucky Broken Distant Frozen Ancient Narrow Bright Hollow Silent Wild Steady Lonely Modern Polar Rustic Sunny Windy Proud Velvet")
	last  = strings.Fields("Heron Anchor Beacon Canyon Comet Cobra Dolphin Engine Feather Garden Hammer Island Jaguar Kettle Ladder Meadow Needle Otter Parrot Piston Rocket Shadow Tiger Tunnel Turtle Valley Walrus Willow Badger Bridge Candle Castle Dragon Eagle Forest Glacier Helmet Lotus Mirror Panther")
)

// Generate makes questions over documents of records, one sentence each, such as
//
//	The colour of machine Dravek is amber.
//
// The facts that answer a question are in one document, or for two facts in two;
// every other record has the same form: other objects with the same attribute,
// and the same object with others. Objects and values are drawn anew for each
// case, so that a question cannot be answered without its documents. The case
// says which bytes of which document are its evidence.
//
// Documents are measured with tok. The result depends on cfg and tok alone.
func Generate(tok *token.Tokenizer, cfg GenerateConfig) ([]Case, error) {
	n, docs, length := cfg.Cases, cfg.Documents, cfg.Tokens
	if n == 0 {
		n = 1
	}
	if docs == 0 {
		docs = 3
	}
	if length == 0 {
		length = 500
	}
	switch {
	case n < 0 || n > 1_000_000:
		return nil, fmt.Errorf("eval: %d cases: want 1 to 1000000", n)
	case docs < 1 || docs > 64:
		return nil, fmt.Errorf("eval: %d documents per case: want 1 to 64", docs)
	case length < 64 || length > 1<<20:
		return nil, fmt.Errorf("eval: documents of %d tokens: want 64 to %d", length, 1<<20)
	case cfg.TwoFacts < 0 || cfg.TwoFacts > n:
		return nil, fmt.Errorf("eval: %d of %d cases ask for two facts: want 0 to %d", cfg.TwoFacts, n, n)
	case cfg.TwoFacts > 0 && docs < 2:
		return nil, fmt.Errorf("eval: questions for two facts need two documents, and there is one: ask for more documents")
	}
	out := make([]Case, 0, n)
	for i := range n {
		r := rand.New(rand.NewPCG(cfg.Seed, uint64(i)))
		facts := 1
		if (i+1)*cfg.TwoFacts/n > i*cfg.TwoFacts/n {
			facts = 2
		}
		c, err := one(tok, r, docs, length, facts)
		if err != nil {
			return nil, fmt.Errorf("eval: case %d: %w", i, err)
		}
		out = append(out, c)
	}
	return out, nil
}

// record is one sentence.
type record struct {
	text   string
	object string
	attr   int
	value  string
}

// one makes one case.
func one(tok *token.Tokenizer, r *rand.Rand, docs, length, facts int) (Case, error) {
	seen := map[string]bool{}
	object := func() string {
		for {
			name := first[r.IntN(len(first))] + " " + last[r.IntN(len(last))]
			if !seen[name] {
				seen[name] = true
				return kinds[r.IntN(len(kinds))] + " " + name
			}
		}
	}
	used := map[string]bool{}
	value := func(a int) string {
		for range 200 {
			v := ""
			if values := attributes[a].values; values != nil {
				v = values[r.IntN(len(values))]
			} else {
				v = fmt.Sprint(1000 + r.IntN(9000))
			}
			if !used[v] {
				return v
			}
		}
		return ""
	}
	say := func(o string, a int, v string) record {
		return record{fmt.Sprintf(attributes[a].says, o, v), o, a, v}
	}
	// The facts first: their values occur nowhere else in the case, so that a right
	// answer can only come from the right place.
	homes := r.Perm(docs)[:facts]
	var gold []record
	a := r.IntN(len(attributes))
	for range facts {
		v := value(a)
		used[v] = true
		gold = append(gold, say(object(), a, v))
	}
	c := Case{Kind: "one fact", Answers: []string{gold[0].value}}
	c.Question = fmt.Sprintf(attributes[a].asks, gold[0].object)
	c.Begin = strings.TrimSuffix(gold[0].text, " "+gold[0].value+".")
	if facts == 2 {
		c.Kind = "two facts"
		c.Question = fmt.Sprintf("What are the %s of %s and of %s?", attributes[a].names, gold[0].object, gold[1].object)
		c.Begin = fmt.Sprintf("The %s of %s and of %s are", attributes[a].names, gold[0].object, gold[1].object)
		c.Answers = []string{gold[0].value + " and " + gold[1].value, gold[0].value + ", " + gold[1].value}
		c.Parts = []string{gold[0].value, gold[1].value}
	}
	for d := range docs {
		var mine []record
		for i, h := range homes {
			if h == d {
				mine = append(mine, gold[i])
				for _, b := range r.Perm(len(attributes))[:3] { // the same object with other attributes
					if b != a {
						mine = append(mine, say(gold[i].object, b, value(b)))
					}
				}
			}
		}
		head := fmt.Sprintf("Records of site %d.", d+1)
		size := len(tok.Encode(nil, head))
		for _, m := range mine {
			size += len(tok.Encode(nil, "\n"+m.text))
		}
		if size > length {
			return Case{}, fmt.Errorf("documents of %d tokens do not hold the %d that the facts take: ask for longer ones", length, size)
		}
		for {
			o := object()
			full := false
			for _, b := range r.Perm(len(attributes))[:1+r.IntN(3)] {
				m := say(o, b, value(b))
				n := len(tok.Encode(nil, "\n"+m.text))
				if full = size+n > length; full {
					break
				}
				size += n
				mine = append(mine, m)
			}
			if full {
				break
			}
		}
		r.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
		var b strings.Builder
		b.WriteString(head)
		for _, m := range mine {
			b.WriteByte('\n')
			for i, h := range homes {
				if h == d && m == gold[i] {
					c.Evidence = append(c.Evidence, Evidence{Document: d, Start: b.Len(), Stop: b.Len() + len(m.text)})
				}
			}
			b.WriteString(m.text)
		}
		c.Documents = append(c.Documents, b.String())
	}
	return c, nil
}

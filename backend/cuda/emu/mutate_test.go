package emu

import (
	"strings"
	"testing"
)

// Mutants differ from the original in one line and load, and every kind of
// arithmetic in the text has some.
func TestMutants(t *testing.T) {
	text := sample(t)
	lines := strings.Split(text, "\n")
	ops := map[string]int{}
	n, every := 0, 7
	if testing.Short() {
		every = 35
	}
	for m := range Mutants(text) {
		n++
		name, _, _ := strings.Cut(m.What, ".")
		ops[name]++
		if n%every != 0 {
			continue
		}
		got := strings.Split(m.Text(), "\n")
		for i := range got {
			if (got[i] != lines[i]) != (i == m.Line-1) {
				t.Fatalf("%s: line %d differs", m.What, i+1)
			}
		}
		if strings.TrimSpace(got[m.Line-1]) == m.Was {
			t.Errorf("line %d: %s changes nothing", m.Line, m.What)
		}
		if n%63 == 0 { // the kernel alone
			mod, err := parse(m.Alone())
			if err != nil || len(mod.kernels) != 1 || mod.kernels[0].name != m.Kernel || !strings.Contains(m.Alone(), m.Now) {
				t.Fatalf("%s of %q: alone it is no module of one kernel: %v", m.What, m.Was, err)
			}
		}
		if n%3 == 0 { // the whole text is compiled again
			mod, err := parse(m.Text())
			if err != nil {
				t.Fatalf("%s of %q: %v", m.What, m.Was, err)
			}
			for _, k := range mod.kernels {
				if k.name == m.Kernel {
					if _, err := compile(mod, k); err != nil {
						t.Fatalf("%s of %q: %v", m.What, m.Was, err)
					}
				}
			}
		}
	}
	for _, op := range []string{"add", "sub", "mul", "fma", "mad", "div", "rcp", "sqrt", "min", "max", "and", "or", "xor", "not", "shl", "shr", "setp", "selp", "shfl", "cvt", "bar", "st", "mov", "popc", "clz", "brev"} {
		if ops[op] == 0 {
			t.Errorf("no mutant of %s", op)
		}
	}
	if n < 1000 {
		t.Errorf("only %d mutants", n)
	}
}

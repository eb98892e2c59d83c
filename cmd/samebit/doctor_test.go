package main

import (
	"strings"
	"testing"

	"samebit/cmd/internal/host"
)

func TestAdvice(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	two := []string{"generic", "avx2"}
	fits := &fit{Weights: 100, Context: 512, Longest: 512, Bound: 50}
	for _, tt := range []struct {
		name string
		d    diagnosis
		want string // in the advice
	}{
		{"all is well", diagnosis{Kernels: two, InUse: "avx2", Threads: 2, Host: host.Facts{Processors: 2}, Model: fits}, "nothing is in the way"},
		{"many threads", diagnosis{Kernels: two, InUse: "avx2", Threads: 8, Host: host.Facts{Processors: 2}, Model: fits}, "use --threads 2"},
		{"a quota", diagnosis{Kernels: two, InUse: "avx2", Threads: 4, Host: host.Facts{Processors: 4, Quota: 1.5}, Model: fits}, "use --threads 1"},
		{"affinity", diagnosis{Kernels: two, InUse: "avx2", Threads: 2, Host: host.Facts{Processors: 2, Installed: 8}, Model: fits}, "2 of 8 processors"},
		{"other kernels", diagnosis{Kernels: two, InUse: "generic", Threads: 2, Host: host.Facts{Processors: 2}, Model: fits}, "avx2 is faster"},
		{"portable kernels", diagnosis{Kernels: two[:1], InUse: "generic", Threads: 2, Host: host.Facts{Processors: 2}, Model: fits}, "only the portable kernels"},
		{"a wrong bit", diagnosis{Kernels: two, InUse: "avx2", Threads: 2, Host: host.Facts{Processors: 2}, Model: fits, Checks: []selfCheck{{Kernels: "avx2", Differing: 1}}}, "do not use the kernels avx2"},
		{"a wrong model", diagnosis{Kernels: two, InUse: "avx2", Threads: 2, Host: host.Facts{Processors: 2}, ModelErr: "is torn"}, "choose another model: is torn"},
		{"too large", diagnosis{Kernels: two, InUse: "avx2", Threads: 2, Host: host.Facts{Processors: 2, Available: 50}, Model: &fit{Weights: 100, Context: 512, Longest: 0}}, "the model needs 100 bytes and 50 bytes are free"},
		{"a long context", diagnosis{Kernels: two, InUse: "avx2", Threads: 2, Host: host.Facts{Processors: 2, Available: 200}, Model: &fit{Weights: 100, Context: 512, Longest: 128}}, "--context 128"},
		{"slow memory", diagnosis{Kernels: two, InUse: "avx2", Threads: 2, Host: host.Facts{Processors: 2}, Model: &fit{Longest: -1, Bound: 0.5}}, "0.5 tokens/s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.d.advise(&modelFlags{})
			if got := strings.Join(tt.d.Advice, "\n"); !strings.Contains(got, tt.want) || len(tt.d.Advice) != 1 {
				t.Errorf("advice is %q, want only %q", got, tt.want)
			}
		})
	}
}

func TestSelfCheckFindsDifferences(t *testing.T) {
	checks, err := selfChecks(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range checks {
		if c.Problem != "" || c.Differing != 0 || c.Ops < 20 || c.Values < 10000 {
			t.Errorf("%+v: want many ops, all exact", c)
		}
	}
	want := []opResult{{op: "Add", values: []uint32{1}}}
	if c := checkAgainst(selfCheck{}, []opResult{{op: "Add", values: []uint32{2}}}, want); c.Differing != 1 || c.First != "Add, value 0: 00000002, want 00000001" {
		t.Errorf("%+v: want one difference", c)
	}
}

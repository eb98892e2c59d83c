package gate

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestAssemble(t *testing.T) {
	const ruler = `{"schema":"samebit.qcc.ruler/1","run_id":"r","synthetic":false,"qcc_only":false,"matched_full_kv":true,"benchmark":"ruler","model_id":"m","memory":"","native_context_tokens":131072,"max_new_tokens":128,
		"full_suite":false,"qcc_score":0.99,"full_kv_score":1,"task_ratios":{"vt/0-8K":0.96,"vt/128K+":null}}`
	found := `{"schema":"samebit.qcc.retrieval_1m/1","run_id":"r","synthetic":false,"qcc_only":false,"matched_full_kv":true,"manifest_sha256":"` + strings.Repeat("a", 64) + `","model_id":"m","memory":"",
		"trials":1000,"context_tokens":1000000,"native_context_tokens":1000000,"qcc_success_rate":1,"full_kv_success_rate":1,"needle_success_rate":1,"full_kv_needle_success_rate":1,
		"catastrophic_retrieval_miss_rate_trials":0,"catastrophic_retrieval_needle_miss_rate":0,"depth_buckets":{"0-25%":{"qcc_full_kv_ratio":0.96},"25-50%":{"qcc_full_kv_ratio":null}},
		"all_needles_required":true,"random_depth":true,"multi_needle":true,"semantic_distractor":true,"oracle_admission":false}`
	of := func(s string, change ...string) []byte { return []byte(strings.NewReplacer(change...).Replace(s)) }
	out, err := Assemble(map[string][]byte{"a": of(ruler), "b": of(found)})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Audit(text)
	if err != nil || r.Passed {
		t.Fatalf("%+v, %v", r, err)
	}
	var got []string
	for _, f := range r.Failures {
		if p, _, _ := strings.Cut(f, ":"); strings.HasPrefix(p, "quality.ruler") || strings.HasPrefix(p, "retrieval_1m") || strings.HasPrefix(p, "tail_safety") || strings.HasPrefix(p, "model.") {
			got = append(got, f)
		}
	}
	// What no report measures, and what the full cache could not do.
	want := []string{"model.pretrained:true", "model.real_checkpoint:true", "model.parameter_count:number",
		"quality.ruler.real_model:true", "quality.ruler.official:true", "quality.ruler.full_suite:true", "quality.ruler.task_ratios.vt/128K+:number",
		"retrieval_1m.real_model:true", "retrieval_1m.protocol_locked:true",
		"tail_safety.real_model:true", "tail_safety.protocol_locked:true", "tail_safety.catastrophic_retrieval_miss_rate:number", "tail_safety.critical_buckets[1].qcc_full_kv_ratio:number"}
	if !slices.Equal(got, want) {
		t.Errorf("failures %q, want %q", got, want)
	}
	for _, part := range []string{"memory:missing", "quality.pg19:missing", "scaling_law:missing"} {
		if !slices.Contains(r.Failures, part) {
			t.Errorf("no %s in %q", part, r.Failures)
		}
	}
	// A report alone gives its sections alone.
	alone, err := Assemble(map[string][]byte{"a": of(ruler)})
	if err != nil || len(alone) != 3 || !reflect.DeepEqual(alone["quality"], out["quality"]) {
		t.Errorf("%v, %v", alone, err)
	}
	other, run, memory := of(ruler, `"m"`, `"n"`), of(found, `"r"`, `"s"`), of(found, `"memory":""`, `"memory":"sieve"`)
	for what, reports := range map[string]map[string][]byte{
		"nothing": {}, "two of a section": {"a": of(ruler), "b": of(ruler)}, "two models": {"a": other, "b": of(found)}, "two memories": {"a": of(ruler), "b": memory}, "two runs": {"a": of(ruler), "b": run},
		"a report without a model": {"a": []byte(`{"schema":"samebit.qcc.ruler/1","run_id":"r"}`)}, "another schema": {"a": []byte(`{"schema":"samebit.qcc.latency/1","run_id":"r","model_id":"m"}`)},
		"a key twice": {"a": []byte(`{"schema":"samebit.qcc.ruler/1","run_id":"r","run_id":"r","model_id":"m"}`)}, "no object": {"a": []byte("[]")},
	} {
		if out, err := Assemble(reports); err == nil {
			t.Errorf("%s was taken: %v", what, out)
		}
	}
}

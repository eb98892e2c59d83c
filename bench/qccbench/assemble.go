package qccbench

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// part is where fields of a report belong in evidence: "field" or "field=from", from
// being a path of keys in the report.
type part struct {
	section string // a path of keys in the evidence
	fields  []string
}

var quality = []string{"benchmark", "full_suite", "native_context_tokens", "qcc_score", "full_kv_score", "task_ratios"}

// parts are those of the reports that name what they are of, by schema. No report has
// all that a section asks for: nobody measures another serving system here, the peak of
// a full cache, or four lengths in one run.
var parts = map[string][]part{
	"ruler":      {{"quality.ruler", quality}},
	"longbench":  {{"quality.longbench", quality}},
	"perplexity": {{"quality.pg19", quality}},
	"retrieval_1m": {
		{"retrieval_1m", []string{"trials", "context_tokens", "native_context_tokens", "qcc_success_rate", "full_kv_success_rate", "needle_success_rate", "full_kv_needle_success_rate",
			"all_needles_required", "random_depth", "multi_needle", "semantic_distractor", "oracle_admission", "manifest_sha256"}},
		{"tail_safety", []string{"catastrophic_retrieval_miss_rate_trials", "catastrophic_retrieval_needle_miss_rate", "critical_buckets"}},
	},
	"latency": {{"production_latency", []string{"context_tokens", "native_context_tokens", "ttft_regression",
		"p95_tpot_speedup=speedup.tpot.p95", "p99_tpot_speedup=speedup.tpot.p99", "p95_ttft_speedup=speedup.ttft.p95", "p99_ttft_speedup=speedup.ttft.p99"}}},
	"concurrency": {{"memory", []string{"context_tokens", "native_context_tokens", "qcc_concurrency", "full_kv_concurrency", "qcc_attention_state_bytes", "full_kv_attention_state_bytes"}}},
	// The state of concurrency's batch is measured beside a full cache, that of a stream is not.
	"streaming_memory": {{"memory", []string{"context_tokens=total_tokens", "native_context_tokens", "qcc_peak_memory_bytes"}}},
}

// heads are fields of every report. Where two reports make one section, it has the value
// that evidence must not have, if either has it.
var heads = map[string]bool{"synthetic": true, "qcc_only": true, "matched_full_kv": false}

// Assemble joins reports, JSON objects by name, into evidence that samebit gate judges. Reports must
// be of one run, model and memory, and of different schemas; two that make one section
// must agree in what both say. A field that a report does not have stays out, and so does
// a section without a report.
func Assemble(reports map[string]map[string]any) (map[string]any, error) {
	if len(reports) == 0 {
		return nil, fmt.Errorf("qccbench: there are no reports")
	}
	out, from := map[string]any{}, map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(reports)) {
		if err := assemble(out, from, name, reports[name]); err != nil {
			return nil, fmt.Errorf("qccbench: report %s: %w", name, err)
		}
	}
	return out, nil
}

// assemble adds a report; from is the name of the report of each schema.
func assemble(out map[string]any, from map[string]string, name string, r map[string]any) error {
	schema, _ := r["schema"].(string)
	l, ok := parts[strings.TrimSuffix(strings.TrimPrefix(schema, schemaBefore), schemaAfter)]
	if !ok || !strings.HasPrefix(schema, schemaBefore) || !strings.HasSuffix(schema, schemaAfter) {
		return fmt.Errorf("no section of evidence is made of schema %q: want a report of qcc-ruler, qcc-longbench, qcc-perplexity, qcc-retrieval-1m, qcc-latency, qcc-concurrency or qcc-streaming-memory", schema)
	}
	if other, twice := from[schema]; twice {
		return fmt.Errorf("report %s is of schema %q, too: take one of them", other, schema)
	}
	from[schema] = name
	run, _ := r["run_id"].(string)
	model, _ := r["model_id"].(string)
	if run == "" || model == "" {
		return fmt.Errorf("it names no run or no model: make it again with this program")
	}
	memory, _ := r["memory"].(string)
	if len(out) == 0 {
		out["run_id"], out["model"] = run, map[string]any{"model_id": model, "memory": memory}
	}
	if m := out["model"].(map[string]any); out["run_id"] != run || m["model_id"] != model || m["memory"] != memory {
		return fmt.Errorf("it is of run %q, model %q and memory %q, others of %q, %q and %q: take reports of one", run, model, memory, out["run_id"], m["model_id"], m["memory"])
	}
	if depths, ok := r["depth_buckets"].(map[string]any); ok {
		buckets := []any{}
		for _, k := range slices.Sorted(maps.Keys(depths)) {
			b := map[string]any{"name": k}
			if of, ok := depths[k].(map[string]any); ok {
				copyFields(b, of, []string{"qcc_full_kv_ratio"})
			}
			buckets = append(buckets, b)
		}
		r = maps.Clone(r)
		r["critical_buckets"] = buckets
	}
	for _, s := range l {
		at := out
		for k := range strings.SplitSeq(s.section, ".") {
			if at[k] == nil {
				at[k] = map[string]any{}
			}
			at = at[k].(map[string]any)
		}
		for k, bad := range heads {
			if x, there := r[k]; there && (at[k] == nil || x == any(bad)) {
				at[k] = x
			}
		}
		if err := copyFields(at, r, append([]string{"run_id", "model_id"}, s.fields...)); err != nil {
			return fmt.Errorf("section %s: %w", s.section, err)
		}
	}
	return nil
}

// copyFields copies those fields that there are. It refuses one that is there already
// with another value.
func copyFields(to, from map[string]any, fields []string) error {
	for _, f := range fields {
		name, path, other := strings.Cut(f, "=")
		if !other {
			path = name
		}
		var x any = from
		there := false
		for k := range strings.SplitSeq(path, ".") {
			m, _ := x.(map[string]any)
			x, there = m[k]
		}
		if !there {
			continue
		}
		if have, twice := to[name]; twice && !reflect.DeepEqual(have, x) {
			return fmt.Errorf("%s is %v here and %v in another report: measure both alike, or take one of them", name, x, have)
		}
		to[name] = x
	}
	return nil
}

package gate

import (
	"fmt"
	"maps"
	"slices"
)

// part is where fields of a report belong in evidence.
type part struct {
	path   []string
	fields []string
}

// parts are those of the reports that name their model.
var parts = map[string][]part{
	"samebit.qcc.ruler/1": {{[]string{"quality", "ruler"}, []string{"benchmark", "full_suite", "native_context_tokens", "qcc_score", "full_kv_score", "task_ratios"}}},
	"samebit.qcc.retrieval_1m/1": {
		{[]string{"retrieval_1m"}, []string{"trials", "context_tokens", "native_context_tokens", "qcc_success_rate", "full_kv_success_rate", "needle_success_rate", "full_kv_needle_success_rate",
			"all_needles_required", "random_depth", "multi_needle", "semantic_distractor", "oracle_admission", "manifest_sha256"}},
		{[]string{"tail_safety"}, []string{"catastrophic_retrieval_miss_rate_trials", "catastrophic_retrieval_needle_miss_rate", "critical_buckets"}},
	},
}

// Assemble joins reports, by name, into evidence for [Audit]. Reports must be of one
// run, model and memory, and fill different sections. A field that a report does not
// have stays out, and so does a section without a report.
func Assemble(reports map[string][]byte) (map[string]any, error) {
	out := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(reports)) {
		if err := assemble(out, reports[name]); err != nil {
			return nil, fmt.Errorf("gate: report %s: %w", name, err)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("gate: there are no reports")
	}
	return out, nil
}

func assemble(out map[string]any, data []byte) error {
	r, err := read(data)
	if err != nil {
		return err
	}
	schema, _ := r["schema"].(string)
	l, ok := parts[schema]
	if !ok {
		return fmt.Errorf("no section of evidence is made of schema %q: want a report of qcc-ruler or qcc-retrieval-1m", schema)
	}
	run, _ := r["run_id"].(string)
	model, _ := r["model_id"].(string)
	if run == "" || model == "" {
		return fmt.Errorf("it names no run or no model")
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
				copyFields(b, of, "qcc_full_kv_ratio")
			}
			buckets = append(buckets, b)
		}
		r["critical_buckets"] = buckets
	}
	for _, s := range l {
		at := out
		for _, k := range s.path[:len(s.path)-1] {
			if at[k] == nil {
				at[k] = map[string]any{}
			}
			at = at[k].(map[string]any)
		}
		last := s.path[len(s.path)-1]
		if at[last] != nil {
			return fmt.Errorf("another report is of schema %q, too: take one of them", schema)
		}
		v := map[string]any{}
		copyFields(v, r, "run_id", "model_id", "synthetic", "qcc_only", "matched_full_kv")
		copyFields(v, r, s.fields...)
		at[last] = v
	}
	return nil
}

// copyFields copies those fields that there are.
func copyFields(to, from map[string]any, names ...string) {
	for _, k := range names {
		if x, ok := from[k]; ok {
			to[k] = x
		}
	}
}

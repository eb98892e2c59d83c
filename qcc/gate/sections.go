package gate

import (
	"maps"
	"math"
	"slices"
)

// root judges the whole: the model, then every section in the order of the page.
func (a *audit) root(s section) {
	a.run = s.text("run_id")
	if m, ok := s.sub("model"); ok {
		a.model = m.text("model_id")
		m.boolean("pretrained", true)
		m.boolean("real_checkpoint", true)
		m.is("parameter_count", "range", func(x float64) bool { return x >= 1e9 && x <= 7e9 })
	}
	for _, part := range []struct {
		name  string
		judge func(s section)
	}{
		{"quality", quality}, {"vllm_latency", latency}, {"memory", memory}, {"calibration", calibration}, {"retrieval_1m", retrieval},
		{"tail_safety", tails}, {"pareto_dominance", pareto}, {"production_latency", production}, {"scaling_law", scaling}, {"generalization", generalization},
	} {
		if p, ok := s.sub(part.name); ok {
			part.judge(p)
		}
	}
}

const (
	longContext = 128_000
	million     = 1_000_000
)

func quality(s section) {
	native, complete := map[float64]bool{}, true
	for _, name := range []string{"ruler", "longbench", "pg19"} {
		q, ok := s.sub(name)
		if !ok {
			complete = false
			continue
		}
		q.measured(true, true)
		q.must(q.v["benchmark"] == any(name), "benchmark", "name")
		q.boolean("full_suite", true)
		n := q.atLeast("native_context_tokens", longContext)
		native[n] = true
		complete = complete && n == n
		score, full := q.number("qcc_score"), q.positive("full_kv_score")
		q.ratio(score, full, "", "ratio", 0.98)
		tasks, ok := q.v["task_ratios"].(map[string]any)
		if !q.must(ok && len(tasks) > 0, "task_ratios", "missing") {
			continue
		}
		t := section{s.audit, q.at("task_ratios"), tasks}
		for _, k := range slices.Sorted(maps.Keys(tasks)) {
			t.atLeast(k, 0.95)
		}
	}
	s.must(!complete || len(native) == 1, "", "one_native_context")
}

func latency(s section) {
	s.measured(false, true)
	s.boolean("stock_vllm", true)
	s.contexts(longContext)
	s.boolean("workload_context_exact", true)
	s.atLeast("tpot_speedup", 5)
	s.atLeast("throughput_speedup", 2)
	s.text("vllm_version")
	s.sha256("workload_sha256")
}

func memory(s section) {
	s.measured(false, true)
	s.contexts(longContext)
	s.boolean("fixed_sla", true)
	for _, part := range [][2]string{{"attention_state_bytes", "state_reduction"}, {"peak_memory_bytes", "peak_reduction"}} {
		full, own := s.positive("full_kv_"+part[0]), s.positive("qcc_"+part[0])
		if full > 0 && own == own {
			s.must(1-own/full >= 0.8, part[1], "min")
		}
	}
	full, own := s.positive("full_kv_concurrency"), s.positive("qcc_concurrency")
	s.ratio(own, full, "concurrency_ratio", "min", 4)
}

func calibration(s section) {
	s.identity()
	s.is("trainable_parameter_fraction", "range", func(x float64) bool { return x >= 0 && x <= 0.01 })
	s.boolean("hf_zero_code_changes", true)
	s.boolean("vllm_zero_code_changes", true)
}

func retrieval(s section) {
	s.measured(false, true)
	s.atLeast("trials", 1000)
	s.contexts(million)
	for _, pair := range [][3]string{
		{"qcc_success_rate", "full_kv_success_rate", "success_ratio"},
		{"needle_success_rate", "full_kv_needle_success_rate", "needle_ratio"},
	} {
		own, full := s.rate(pair[0], 0.99), s.rate(pair[1], 0.99)
		s.ratio(own, full, pair[2], "min", 0.99)
	}
	s.boolean("all_needles_required", true)
	s.boolean("random_depth", true)
	s.boolean("multi_needle", true)
	s.boolean("semantic_distractor", true)
	s.boolean("oracle_admission", false)
	s.sha256("manifest_sha256")
}

func tails(s section) {
	s.measured(false, true)
	for _, name := range []string{"catastrophic_retrieval_miss_rate", "catastrophic_retrieval_miss_rate_trials", "catastrophic_retrieval_needle_miss_rate"} {
		x := s.number(name)
		if x == x && s.must(x >= 0 && x <= 1, name, "range") {
			s.must(x < 0.01, name, "max")
		}
	}
	buckets, _ := s.list("critical_buckets")
	for _, b := range buckets {
		if x := b.number("qcc_full_kv_ratio"); x == x {
			b.must(x >= 0.95, "", "min")
		}
	}
}

func pareto(s section) {
	s.measured(false, true)
	s.boolean("all_dominated", true)
	list, _ := s.list("baselines")
	names := map[string]bool{}
	for _, b := range list {
		names[b.text("name")] = true
		b.boolean("qcc_dominates", true)
		b.boolean("memory_dominates", true)
		worse, better, numbers := false, false, true
		for _, m := range []struct {
			name string
			sign float64 // 1: more is better
		}{{"quality_score", 1}, {"state_bytes", -1}, {"p95_tpot_ms", -1}, {"throughput_tokens_per_s", 1}} {
			d := m.sign * (b.number("qcc_"+m.name) - b.number("baseline_"+m.name))
			worse, better, numbers = worse || d < 0, better || d > 0, numbers && d == d
		}
		if numbers && b.must(!worse, "", "not_worse") {
			b.must(better, "", "strictly_better")
		}
	}
	delete(names, "")
	s.must(len(names) >= 3, "baselines", "count")
	s.must(names["fp8_full_kv"], "baselines", "fp8_full_kv")
}

func production(s section) {
	s.measured(false, true)
	s.is("ttft_regression", "max", func(x float64) bool { return x <= 0 })
	for _, name := range []string{"p95_tpot_speedup", "p99_tpot_speedup", "p95_ttft_speedup", "p99_ttft_speedup"} {
		s.atLeast(name, 1)
	}
	s.boolean("throughput_latency_tradeoff", false)
}

func scaling(s section) {
	s.measured(false, true)
	points, complete := s.list("points")
	lengths := map[float64]bool{}
	bytes, times := spread{least: math.Inf(1)}, spread{least: math.Inf(1)}
	for _, p := range points {
		lengths[p.number("context_tokens")] = true
		p.boolean("measured", true)
		p.boolean("matched_full_kv", true)
		bytes.add(p.positive("qcc_state_bytes"))
		times.add(p.positive("tpot_ms"))
	}
	if !complete {
		return
	}
	want := []float64{128_000, 256_000, 512_000, million}
	all := len(points) == len(want)
	for _, n := range want {
		all = all && lengths[n]
	}
	if !s.must(all, "points", "lengths") {
		return
	}
	s.must(bytes.bad || bytes.most/bytes.least <= 1.25, "state_variation", "max")
	s.must(times.bad || times.most/times.least <= 1.25, "tpot_variation", "max")
}

// spread is the least and the largest of positive numbers.
type spread struct {
	least, most float64
	bad         bool // one was none, which is a failure already
}

func (s *spread) add(x float64) {
	if !(x > 0) {
		s.bad = true
		return
	}
	s.least, s.most = min(s.least, x), max(s.most, x)
}

func generalization(s section) {
	s.measured(false, false)
	for _, name := range []string{"model_families", "gpu_generations", "independent_reproductions"} {
		s.atLeast(name, 2)
	}
	list, _ := s.list("evaluations")
	distinct := map[string]map[string]bool{"model_family": {}, "gpu_generation": {}, "reproduction_id": {}}
	for _, e := range list {
		for _, k := range []string{"model_family", "gpu_generation", "reproduction_id"} {
			distinct[k][e.text(k)] = true
		}
		e.text("source")
		e.atLeast("native_context_tokens", longContext)
	}
	for _, k := range [][2]string{{"model_family", "families"}, {"gpu_generation", "generations"}, {"reproduction_id", "reproductions"}} {
		delete(distinct[k[0]], "")
		s.must(len(distinct[k[0]]) >= 2, "evaluations", k[1])
	}
}

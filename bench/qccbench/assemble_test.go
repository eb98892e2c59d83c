package qccbench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// report is what a test says of a report.
func report(schema, fields string) []byte {
	return fmt.Appendf(nil, `{"schema":"samebit.qcc.%s/1","run_id":"r","synthetic":false,"qcc_only":%v,"matched_full_kv":%v,"model_id":"m","memory":"w","native_context_tokens":131072,%s}`,
		schema, schema == "streaming_memory", schema != "streaming_memory", fields)
}

// joined are reports as whoever reads them gives them, joined.
func joined(t *testing.T, reports map[string][]byte) (map[string]any, error) {
	t.Helper()
	read := map[string]map[string]any{}
	for name, text := range reports {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		var r map[string]any
		if err := d.Decode(&r); err != nil {
			t.Fatal(err)
		}
		read[name] = r
	}
	return Assemble(read)
}

// Every section has what its reports measured, digit by digit, and nothing else.
func TestAssemble(t *testing.T) {
	reports := map[string][]byte{
		"ruler":     report("ruler", `"benchmark":"ruler","full_suite":false,"qcc_score":0.990,"full_kv_score":1,"task_ratios":{"vt/128K+":null}`),
		"longbench": report("longbench", `"benchmark":"longbench","full_suite":true,"token_f1":{"qcc":1},"tasks":{}`),
		"pg19":      report("perplexity", `"full_suite":false,"qcc_score":0.09,"full_kv_score":0.1,"task_ratios":{"0-25%":0.9}`),
		"found":     report("retrieval_1m", `"trials":3,"manifest_sha256":"x","catastrophic_retrieval_miss_rate_trials":0,"depth_buckets":{"0-25%":{"qcc_full_kv_ratio":0.96},"25-50%":{"needles":1}}`),
		"latency":   report("latency", `"context_tokens":9,"ttft_regression":-0.5,"speedup":{"ttft":{"p95":2,"p99":2.50},"tpot":{"mean":3,"p95":4}}`),
		"several":   report("concurrency", `"context_tokens":9,"qcc_concurrency":8,"full_kv_concurrency":2,"qcc_attention_state_bytes":10,"batches":[]`),
		"stream":    report("streaming_memory", `"total_tokens":9,"qcc_peak_memory_bytes":77,"attention_state_bytes":11`),
	}
	out, err := joined(t, reports)
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	const heads = `,"model_id":"m","native_context_tokens":131072,`
	const matched = `"matched_full_kv":true`
	want := `{"memory":{"context_tokens":9,"full_kv_concurrency":2,"matched_full_kv":false` + heads + `"qcc_attention_state_bytes":10,"qcc_concurrency":8,"qcc_only":true,"qcc_peak_memory_bytes":77,"run_id":"r","synthetic":false},` +
		`"model":{"memory":"w","model_id":"m"},` +
		`"production_latency":{"context_tokens":9,` + matched + heads + `"p95_tpot_speedup":4,"p95_ttft_speedup":2,"p99_ttft_speedup":2.50,"qcc_only":false,"run_id":"r","synthetic":false,"ttft_regression":-0.5},` +
		`"quality":{"longbench":{"benchmark":"longbench","full_suite":true,` + matched + heads + `"qcc_only":false,"run_id":"r","synthetic":false},` +
		`"pg19":{"full_kv_score":0.1,"full_suite":false,` + matched + heads + `"qcc_only":false,"qcc_score":0.09,"run_id":"r","synthetic":false,"task_ratios":{"0-25%":0.9}},` +
		`"ruler":{"benchmark":"ruler","full_kv_score":1,"full_suite":false,` + matched + heads + `"qcc_only":false,"qcc_score":0.990,"run_id":"r","synthetic":false,"task_ratios":{"vt/128K+":null}}},` +
		`"retrieval_1m":{"manifest_sha256":"x",` + matched + heads + `"qcc_only":false,"run_id":"r","synthetic":false,"trials":3},"run_id":"r",` +
		`"tail_safety":{"catastrophic_retrieval_miss_rate_trials":0,"critical_buckets":[{"name":"0-25%","qcc_full_kv_ratio":0.96},{"name":"25-50%"}],` + matched + `,"model_id":"m","qcc_only":false,"run_id":"r","synthetic":false}}`
	if string(got) != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	// A part that is synthetic makes its section so, whichever report is first.
	for _, name := range []string{"several", "stream"} {
		of := map[string][]byte{"several": reports["several"], "stream": reports["stream"]}
		of[name] = []byte(strings.Replace(string(of[name]), `"synthetic":false`, `"synthetic":true`, 1))
		if out, err := joined(t, of); err != nil || len(out) != 3 || out["memory"].(map[string]any)["synthetic"] != true {
			t.Errorf("%v, %v", out, err)
		}
	}
	change := func(of, from, to string) []byte { return []byte(strings.Replace(string(reports[of]), from, to, 1)) }
	for what, of := range map[string]map[string][]byte{
		"there are no reports":                   {},
		"report a is of schema":                  {"a": reports["ruler"], "b": reports["ruler"]},
		`model "n"`:                              {"a": reports["ruler"], "b": change("latency", `"m"`, `"n"`)},
		`memory "v"`:                             {"a": reports["ruler"], "b": change("found", `"w"`, `"v"`)},
		`run "s"`:                                {"a": reports["ruler"], "b": change("several", `"r"`, `"s"`)},
		"names no run or no model":               {"a": change("latency", "model_id", "model")},
		`made of schema "samebit.qcc.scaling/1"`: {"a": report("scaling", `"lengths":[]`)},
		`made of schema "ruler"`:                 {"a": []byte(`{"schema":"ruler"}`)},
		"context_tokens is 10 here and 9":        {"a": reports["several"], "b": change("stream", `"total_tokens":9`, `"total_tokens":10`)},
	} {
		if out, err := joined(t, of); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, %v; want %q", out, err, what)
		}
	}
}

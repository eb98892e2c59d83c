package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"samebit/bench/qccbench"
	"samebit/qcc/gate"
)

func makeQCCEvidence() *cobra.Command {
	c := &cobra.Command{Use: "qcc-assemble REPORT...", Short: "Join reports into evidence for the gate",
		Long: `Join reports of qcc-ruler, qcc-longbench, qcc-perplexity, qcc-retrieval-1m, qcc-latency,
qcc-concurrency and qcc-streaming-memory into the JSON object that samebit gate judges,
and print it. All must be of one --run-id, model and memory. Nothing is filled in: what
no report says, and sections without a report, stay missing, which the gate refuses.`,
		Example: "  samebit bench qcc-assemble ruler.json retrieval.json latency.json > evidence.json\n  samebit gate evidence.json",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("want at least one report")
			}
			return nil
		}}
	c.RunE = func(c *cobra.Command, args []string) error {
		reports := map[string]map[string]any{}
		for _, name := range args {
			if _, twice := reports[name]; twice {
				return usagef("bench qcc-assemble: report %s is named twice", name)
			}
			data, err := readEvidence(c, name)
			if err != nil {
				return fmt.Errorf("bench qcc-assemble: %w", err)
			}
			if reports[name], err = gate.Read(data); err != nil { // as strictly as the evidence will be
				return fmt.Errorf("bench qcc-assemble: %s: %w", name, err)
			}
		}
		out, err := qccbench.Assemble(reports)
		if err != nil {
			return fmt.Errorf("bench qcc-assemble: %w", err)
		}
		return printJSON(c.OutOrStdout(), out)
	}
	return c
}

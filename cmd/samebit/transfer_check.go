package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"samebit/rclc"
	"samebit/token/jinja"
)

// checkTransfer says, as JSON, whether an agent of the model can send and receive, and
// dir, unless empty, keep what it sends. Exit code 1 if not.
func checkTransfer(c *cobra.Command, mf *modelFlags, most int, dir string) error {
	m, done, err := mf.open(c)
	if err != nil {
		return err
	}
	defer done()
	model, err := rclcModel(m)
	if err != nil {
		return err
	}
	a, err := rclc.Bind(c.Context(), model, rclc.AgentConfig{History: func() []jinja.Message { return nil }, MaxNewTokens: most})
	if err != nil {
		return err
	}
	defer a.Close()
	r := rclc.Check(a, rclc.CheckConfig{SnapshotDir: dir})
	b, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		_, err = fmt.Fprintf(c.OutOrStdout(), "%s\n", b)
	}
	if err == nil && !r.OK {
		err = errors.New("transfer: " + strings.Join(r.Issues, "; "))
	}
	return err
}

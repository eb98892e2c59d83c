package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagError says in one line which flag is wrong and what it wants.
func flagError(c *cobra.Command, err error) error {
	var value *pflag.InvalidValueError
	if errors.As(err, &value) {
		f := value.GetFlag()
		return usagef("%s: --%s %q: want %s", c.Name(), f.Name, value.GetValue(), kind(f.Value.Type()))
	}
	var missing *pflag.ValueRequiredError
	if errors.As(err, &missing) {
		f := missing.GetFlag()
		return usagef("%s: --%s needs a value: %s", c.Name(), f.Name, kind(f.Value.Type()))
	}
	return usagef("%s: %w", c.Name(), err)
}

// kind is what values of a flag's type look like.
func kind(t string) string {
	switch t {
	case "int":
		return "a whole number"
	case "uint64":
		return "a whole number from 0 on"
	case "float32":
		return "a number"
	case "bool":
		return "true or false"
	case "intSlice":
		return "whole numbers, comma separated"
	case "stringSlice":
		return "words, comma separated"
	}
	return "a text"
}

// longFlags lets long flags be written with one dash, as Go programs do.
func longFlags(root *cobra.Command, args []string) []string {
	long, short := map[string]bool{"help": true}, map[byte]bool{'h': true}
	visit := func(f *pflag.Flag) {
		long[f.Name] = true
		if f.Shorthand != "" {
			short[f.Shorthand[0]] = true
		}
	}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		c.Flags().VisitAll(visit)
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
	out := make([]string, 0, len(args))
	c, value := root, false // the command so far; a flag before waits for its value
	for i, a := range args {
		switch rest, dash := strings.CutPrefix(a, "-"); {
		case value:
			value = false
		case a == "--":
			return append(out, args[i:]...)
		case !dash:
			for _, sub := range c.Commands() {
				if sub.Name() == a || sub.HasAlias(a) {
					c = sub
					break
				}
			}
		default:
			if name, _, _ := strings.Cut(rest, "="); len(name) > 1 && name[0] != '-' {
				// What is no flag at all is taken as a long one, for the sake of the message.
				if (long[name] || !short[name[0]]) && !isNumber(name) {
					a = "-" + a
				}
			}
			value = waits(c, a)
		}
		out = append(out, a)
	}
	return out
}

// waits reports whether the argument after flag a of c is its value.
func waits(c *cobra.Command, a string) bool {
	if name, long := strings.CutPrefix(a, "--"); long {
		f := c.Flag(name) // none if there is a = in it
		return f != nil && f.NoOptDefVal == ""
	}
	for i := 1; i < len(a); i++ {
		if f := c.Flags().ShorthandLookup(a[i : i+1]); f != nil && f.NoOptDefVal == "" {
			return i == len(a)-1 // or the rest is the value
		}
	}
	return false
}

// isNumber tells the -5 of a value from a flag.
func isNumber(s string) bool { return s[0] == '.' || '0' <= s[0] && s[0] <= '9' }

// oneOf checks a list of words from the command line.
func oneOf(flag string, have []string, words ...string) error {
	for _, w := range words {
		if !slices.Contains(have, w) {
			return usagef("--%s %q: have %s", flag, w, strings.Join(have, ", "))
		}
	}
	return nil
}

// unused refuses flags that were given and have no effect; why ends the sentence.
func unused(c *cobra.Command, why string, flags ...string) error {
	for _, name := range flags {
		if c.Flags().Changed(name) {
			return usagef("%s: --%s %s", c.Name(), name, why)
		}
	}
	return nil
}

// atLeast checks numbers from the command line.
func atLeast(flag string, least int, values ...int) error {
	for _, v := range values {
		if v < least {
			return usageError{fmt.Errorf("--%s %d: want at least %d", flag, v, least)}
		}
	}
	return nil
}

// noArgs refuses arguments that are no flags.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("takes no arguments, got %q", args[0])
	}
	return nil
}

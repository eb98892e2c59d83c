package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"samebit"
	"samebit/token"
)

func newTokenize() *cobra.Command {
	var path string
	var decode, special, plain, asJSON bool
	c := &cobra.Command{
		Use:   "tokenize [flags] TEXT | -",
		Short: "Show the tokens of a text, or the text of token ids",
		Example: `  samebit tokenize "Hello, world"
  samebit tokenize --decode 9906 11 1917`,
		Args: cobra.ArbitraryArgs,
	}
	c.Flags().StringVarP(&path, "model", "m", "", "model file or directory, or a directory with a tokenizer.json")
	c.Flags().BoolVar(&decode, "decode", false, "the arguments are ids; print their text")
	c.Flags().BoolVar(&special, "special", false, "add the tokens that the model wants around a text")
	c.Flags().BoolVar(&plain, "plain", false, "take control tokens in the text as ordinary characters")
	c.Flags().BoolVar(&asJSON, "json", false, "print a JSON array of ids")
	c.RunE = func(_ *cobra.Command, args []string) error {
		if special && plain {
			return usagef("--special and --plain exclude each other")
		}
		in, err := text(args)
		if err != nil {
			return err
		}
		if path == "" {
			if path, err = defaultModel(); err != nil {
				return err
			}
		}
		t, err := samebit.OpenTokenizer(path)
		if err != nil {
			return err
		}
		if decode {
			ids, err := parseIDs(in, t)
			if err != nil {
				return err
			}
			_, err = os.Stdout.WriteString(t.Text(ids) + "\n")
			return err
		}
		var ids []int32
		switch {
		case special:
			ids = t.EncodeSpecial(nil, in)
		case plain:
			ids = t.EncodePlain(nil, in)
		default:
			ids = t.Encode(nil, in)
		}
		if asJSON {
			if ids == nil {
				ids = []int32{}
			}
			return json.NewEncoder(os.Stdout).Encode(ids)
		}
		for _, id := range ids {
			fmt.Printf("%d\t%q\n", id, t.TokenBytes(id))
		}
		fmt.Fprintf(os.Stderr, "%d tokens\n", len(ids))
		return nil
	}
	return c
}

func parseIDs(s string, t *token.Tokenizer) ([]int32, error) {
	var ids []int32
	for _, f := range strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(" ,[]\t\r\n", r) }) {
		n, err := strconv.ParseInt(f, 10, 32)
		if err != nil {
			return nil, usagef("tokenize --decode: %q is not a token id", f)
		}
		if n < 0 || int(n) >= t.Size() {
			return nil, fmt.Errorf("tokenize --decode: id %d is outside the vocabulary of %d", n, t.Size())
		}
		ids = append(ids, int32(n))
	}
	return ids, nil
}

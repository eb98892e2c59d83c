package main

import (
	"bufio"
	"fmt"
	"io"
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
		Use:   "tokenize [flags] [TEXT | -]",
		Short: "Show the tokens of a text, or the text of token ids",
		Long: `Show the tokens of a text: id and bytes, one token per line. The text is the
arguments, or standard input taken as it is. With --decode the ids are, and their
text is printed.`,
		Example: `  samebit tokenize "Hello, world"
  samebit tokenize --json "Hello, world" | samebit tokenize --decode`,
		Args: cobra.ArbitraryArgs,
	}
	c.Flags().SortFlags = false
	c.Flags().StringVarP(&path, "model", "m", "", modelHelp+"; a directory with a tokenizer.json is enough")
	c.Flags().BoolVar(&decode, "decode", false, "the text is token ids; print what they stand for")
	c.Flags().BoolVar(&special, "special", false, "add the tokens that the model wants around a text")
	c.Flags().BoolVar(&plain, "plain", false, "take control tokens in the text as ordinary characters")
	c.Flags().BoolVar(&asJSON, "json", false, "print a JSON array of ids, or with --decode a JSON string")
	c.RunE = func(c *cobra.Command, args []string) error {
		switch {
		case special && plain:
			return usagef("tokenize: --special and --plain exclude each other")
		case decode && (special || plain):
			return usagef("tokenize: --decode goes with neither --special nor --plain")
		}
		in, err := text(c, args)
		if err != nil {
			return err
		}
		t, err := openTokenizer(resolveModel(path))
		if err != nil {
			return err
		}
		w := bufio.NewWriter(c.OutOrStdout())
		defer w.Flush()
		if decode {
			return printText(w, in, t, asJSON)
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
			return printJSON(w, append([]int32{}, ids...))
		}
		for _, id := range ids {
			fmt.Fprintf(w, "%d\t%q\n", id, t.TokenBytes(id))
		}
		if err := w.Flush(); err != nil {
			return err
		}
		fmt.Fprintf(c.ErrOrStderr(), "%d tokens\n", len(ids))
		return nil
	}
	return c
}

// openTokenizer opens the vocabulary of a model.
func openTokenizer(path string) (*token.Tokenizer, error) {
	if files, ok := embedded(path); ok {
		return token.OpenFS(path, files)
	}
	return samebit.OpenTokenizer(path)
}

func printText(w io.Writer, in string, t *token.Tokenizer, asJSON bool) error {
	ids, err := parseIDs(in, t)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(w, t.Text(ids))
	}
	_, err = io.WriteString(w, t.Text(ids)+"\n")
	return err
}

func parseIDs(s string, t *token.Tokenizer) ([]int32, error) {
	var ids []int32
	for _, f := range strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(" ,[]\t\r\n", r) }) {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return nil, usagef("tokenize: --decode: %q is not a token id", f)
		}
		if n < 0 || n >= int64(t.Size()) {
			return nil, fmt.Errorf("tokenize: --decode: id %d is outside the vocabulary of %d", n, t.Size())
		}
		ids = append(ids, int32(n))
	}
	return ids, nil
}

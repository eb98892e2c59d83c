package rclc

import (
	"bufio"
	_ "embed"
	"fmt"
	"html"
	"io"
)

// The page's style is all it needs: its content policy lets nothing be loaded.
//
//go:embed page.css
var pageStyle string

// page writes the view of the selections of one request.
func page(w io.Writer, request Request, records []*Selection) error {
	b := bufio.NewWriter(w)
	b.WriteString(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Selected context</title>
<style>
` + pageStyle + `</style>
</head>
<body>
<main>
<h1>Selected context</h1>
<section>
<h2>Request</h2>
`)
	if len(request.IDs) > 0 {
		fmt.Fprintf(b, "<p class=\"note\">The request was supplied as %d token ids.</p>\n", len(request.IDs))
	} else {
		b.WriteString("<p class=\"text\">" + html.EscapeString(request.Text) + "</p>\n")
	}
	b.WriteString(`</section>
<p class="legend"><mark>kept</mark> <span>left out</span> <mark class="rows">kept rows without text</mark> <span class="rows">rows without text, left out</span></p>
`)
	for i, r := range records {
		fmt.Fprintf(b, "<section>\n<h2>Sender %d, %d / %d positions, budget %d</h2>\n", i+1, len(r.Indices), r.Source, r.Budget)
		if r.Added > 0 {
			fmt.Fprintf(b, "<p class=\"note\">%d latent rows were added after the selection.</p>\n", r.Added)
		}
		b.WriteString("<p class=\"text\">")
		for _, s := range r.Spans {
			writeSpan(b, s)
		}
		b.WriteString("</p>\n</section>\n")
	}
	b.WriteString("</main>\n</body>\n</html>\n")
	return b.Flush()
}

func writeSpan(b *bufio.Writer, s Span) {
	tag, status := "span", "left out"
	if s.Kept {
		tag, status = "mark", "kept"
	}
	class, text := "", html.EscapeString(s.Text)
	if s.Text == "" {
		class, text = ` class="rows"`, fmt.Sprintf("[%s × %d]", s.Kind, s.Stop-s.Start)
	}
	fmt.Fprintf(b, `<%s%s title="%s [%d, %d)">%s</%s>`, tag, class, status, s.Start, s.Stop, text, tag)
}

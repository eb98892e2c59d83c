package rclc

import (
	"bytes"
	"context"
	"errors"
	"html"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"samebit/internal/testenv"
)

// shown is a delivery with markup in its tokens and every kind of span.
func shown(address string) Delivery {
	evil := `</mark></p><script src="` + address + `/x.js">alert(1)</script><img src='` + address + `/x.png' onerror=alert(1)>&amp;<!-- `
	one := &Selection{Source: 20, Budget: 9, Indices: []int{0, 1, 2, 6, 7, 12, 19}, Added: 4, Spans: []Span{
		{0, 3, true, KindToken, "The lamp " + evil}, {3, 6, false, KindToken, " burns\nall <b>night</b>."},
		{6, 8, true, KindContinuous, ""}, {8, 12, false, KindContinuous, ""}, {12, 13, true, KindToken, `" title="x`}, {13, 18, false, KindLatent, ""}, {18, 20, true, KindLatent, ""},
	}}
	two := &Selection{Source: 5, Budget: 2, Indices: []int{1}, Spans: []Span{{0, 1, false, KindUnknown, ""}, {1, 2, true, KindUnknown, ""}, {2, 5, false, KindUnknown, ""}}}
	m := func(s *Selection) Message {
		return Message{width: 1, rows: make([]float32, len(s.Indices)), selection: s}
	}
	return Delivery{Request: Request{Text: `Who <i>burns</i>? ` + evil}, Messages: []Message{m(one), m(two)}}
}

// tags are what a page of this package may contain.
var tags = regexp.MustCompile(`^(!doctype html|html lang="en"|head|meta charset="utf-8"|meta (http-equiv|name)="[A-Za-z-]+" content="[a-z0-9 ',;=.-]+"|title|style|body|main|h1|h2|section|p( class="[a-z]+")?|(mark|span)( class="rows")?( title="(kept|left out) \[\d+, \d+\)")?|/(html|head|title|style|body|main|h1|h2|section|p|mark|span))$`)

func TestSelectionHTML(t *testing.T) {
	d := shown("http://192.0.2.1")
	var b bytes.Buffer
	if err := d.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, tag := range regexp.MustCompile(`<[^>]*>`).FindAllString(page, -1) {
		if !tags.MatchString(tag[1 : len(tag)-1]) {
			t.Errorf("the tag %s has no place in the page", tag)
		}
	}
	for _, want := range []string{
		`Sender 1, 7 / 20 positions, budget 9`, `Sender 2, 1 / 5 positions, budget 2`, `4 latent rows were added after the selection`,
		`<mark title="kept [0, 3)">The lamp &lt;/mark&gt;&lt;/p&gt;&lt;script`, "<span title=\"left out [3, 6)\"> burns\nall &lt;b&gt;night&lt;/b&gt;.</span>",
		`<mark class="rows" title="kept [6, 8)">[continuous × 2]</mark>`, `<span class="rows" title="left out [8, 12)">[continuous × 4]</span>`,
		`<mark title="kept [12, 13)">&#34; title=&#34;x</mark>`, `<span class="rows" title="left out [13, 18)">[latent × 5]</span>`, `<mark class="rows" title="kept [18, 20)">[latent × 2]</mark>`,
		`<mark class="rows" title="kept [1, 2)">[unknown × 1]</mark>`, `Who &lt;i&gt;burns&lt;/i&gt;? `,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if style := pageStyle; strings.Contains(style, "url(") || strings.Contains(style, "@import") || strings.Contains(style, "<") {
		t.Error("the style loads something, or ends early")
	}
	if strings.Count(page, "latent rows were added") != 1 {
		t.Error("a sender without added rows says that it has some")
	}

	d.Request = Request{IDs: []int32{4, 5}}
	b.Reset()
	if err := d.WriteHTML(&b); err != nil || !strings.Contains(b.String(), "supplied as 2 token ids") {
		t.Errorf("a request of ids: %v", err)
	}
	d.Messages[1].selection = nil
	if err := d.WriteHTML(&b); !errors.Is(err, ErrOption) || Code(err) != "not_recorded" {
		t.Errorf("an unrecorded message: %v", err)
	}
	if err := shown("").WriteHTML(fullWriter{}); !errors.Is(err, errFull) {
		t.Errorf("a writer that fails: %v", err)
	}
}

var errFull = errors.New("full")

type fullWriter struct{}

func (fullWriter) Write([]byte) (int, error) { return 0, errFull }

// The second delivery of a queue is shown without being taken.
func TestSelectionHTMLOfQueue(t *testing.T) {
	g := newRig(t, "qwen3-bf16")
	a := g.bind(AgentConfig{})
	g.must(a.Deliver(bg, g.delivery("First?", Embeddings)))
	g.must(a.Deliver(bg, g.delivery("Second <b>?", TokenIDs)))
	var b bytes.Buffer
	g.must(a.SelectionHTML(&b, 1))
	if page := b.String(); !strings.Contains(page, "Second &lt;b&gt;?") || strings.Contains(page, "First?") || strings.Count(page, "<section>") != 3 {
		t.Errorf("the page of the second delivery: %s", page)
	}
	if a.Len() != 2 {
		t.Errorf("%d deliveries are left", a.Len())
	}
	for _, i := range []int{-1, 2} {
		g.refused("a bad index", a.SelectionHTML(&b, i), ErrOption, "queue_index")
	}
}

// A browser shows the kept spans, takes markup in tokens for text, and asks nobody
// for anything.
func TestSelectionHTMLInBrowser(t *testing.T) {
	var exe string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			exe = path
			break
		}
	}
	if exe == "" {
		testenv.Missing(t, "chromium", "install chromium, for a look at the page in a browser")
	}
	var asked atomic.Int64
	outside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		t.Logf("the page asked for %s", r.URL)
	}))
	defer outside.Close()
	var b bytes.Buffer
	if err := shown(outside.URL).WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	dom := func(page string) string {
		t.Helper()
		path := filepath.Join(dir, "page.html")
		if err := os.WriteFile(path, []byte(page), 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		c := exec.CommandContext(ctx, exe, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--user-data-dir="+filepath.Join(dir, "profile"), "--dump-dom", "file://"+path)
		out, err := c.Output()
		if err != nil {
			var e *exec.ExitError
			if errors.As(err, &e) {
				err = errors.New(string(e.Stderr))
			}
			t.Fatalf("%s: %v", exe, err)
		}
		return string(out)
	}
	got := dom(b.String())
	var kept []string
	for _, m := range regexp.MustCompile(`(?s)<mark[^>]*title="kept [^>]*>(.*?)</mark>`).FindAllStringSubmatch(got, -1) {
		kept = append(kept, html.UnescapeString(m[1]))
	}
	first := shown(outside.URL).Messages[0].selection.Spans[0].Text
	want := []string{first, "[continuous × 2]", `" title="x`, "[latent × 2]", "[unknown × 1]"}
	if len(kept) != len(want) {
		t.Fatalf("the browser shows the kept spans %q, want %q", kept, want)
	}
	for i := range want {
		if kept[i] != want[i] {
			t.Errorf("kept span %d is %q, want %q", i, kept[i], want[i])
		}
	}
	for _, no := range []string{"<script", "<img", "<b>", "<i>", "<link", "onerror=\""} {
		if strings.Contains(got, no) {
			t.Errorf("the browser made an element of %s", no)
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("the page asked outside %d times", n)
	}
	// The witness notices a page that does ask.
	dom(`<!doctype html><img src="` + outside.URL + `/witness">`)
	if asked.Load() == 0 {
		t.Error("a page that loads an image was not noticed")
	}
}

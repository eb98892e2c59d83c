package token

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

func TestNFCOfLongMarkRuns(t *testing.T) {
	acute, dot := "\u0301", "\u0323" // classes 230 and 220
	for _, tt := range []struct{ in, want, why string }{
		{"a" + strings.Repeat(acute, 40), "á" + strings.Repeat(acute, 39), "only the first composes; no U+034F after 30"},
		{"a" + strings.Repeat(acute, 40) + dot, "ạ" + strings.Repeat(acute, 40), "the dot sorts first and composes, then acute has no composite"},
		{"x" + strings.Repeat(acute+dot, 20), "x" + strings.Repeat(dot, 20) + strings.Repeat(acute, 20), "sorted, nothing composes"},
		{strings.Repeat(acute, 50), strings.Repeat(acute, 50), "no starter"},
		{"a" + strings.Repeat("\u0344", 30), "\u00e4\u0301" + strings.Repeat("\u0308\u0301", 29), "U+0344 is two marks"},
		{"\u1100\u1161\u11a8" + strings.Repeat(acute, 33), "각" + strings.Repeat(acute, 33), "Hangul"},
		{"\xe4\xbd" + strings.Repeat(acute, 33), "\xe4\xbd" + strings.Repeat(acute, 33), "broken bytes stay"},
	} {
		if got := nfc(tt.in); got != tt.want {
			t.Errorf("nfc(%+q)\n got %+q\nwant %+q (%s)", tt.in, got, tt.want, tt.why)
		}
		if got := nfc(tt.want); got != tt.want {
			t.Errorf("nfc is not idempotent on %+q: %+q", tt.want, got)
		}
	}
}

func TestComposeLongEqualsNorm(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for i := range 20000 {
		var b strings.Builder
		for range rng.IntN(7) {
			switch rng.IntN(8) {
			case 0:
				b.WriteRune(rng.Int32N(unicode.MaxRune + 1))
			case 1:
				b.WriteRune(0x300 + rng.Int32N(0x70))
			case 2:
				b.WriteRune(0x1100 + rng.Int32N(0x100))
			case 3:
				b.WriteRune(0xac00 + rng.Int32N(11172))
			case 4: // broken bytes only before ASCII: norm does not look at a mark after one
				b.WriteString(string([]byte{byte(rng.IntN(256)), 'a'}))
			case 5:
				b.WriteRune(0x900 + rng.Int32N(0x500)) // Indic composites
			case 6:
				b.WriteRune(rng.Int32N(0x250))
			default:
				b.WriteRune(0x1e00 + rng.Int32N(0x200))
			}
		}
		s := b.String()
		if got, want := composeLong(s), norm.NFC.String(s); got != want {
			t.Fatalf("text %d of seed 9, 10: %+q\n got %+q\nwant %+q", i, s, got, want)
		}
	}
}

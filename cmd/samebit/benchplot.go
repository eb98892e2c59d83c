package main

import (
	"fmt"
	"image/color"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"samebit/bench"
)

// mostPanels is how many models, or numbers of threads, a plot has room for.
const mostPanels = 6

func newBenchPlot() *cobra.Command {
	var out, over string
	var models []string
	c := &cobra.Command{
		Use:   "plot FILE",
		Short: "Draw decode rates beside a peer's",
		Long: `Draw what bench/peers/pair.py --json FILE measured: how fast samebit and the peer decode
over the tokens before (--over depth) or over the sequences that decode together (--over
batch), medians of the rounds with the slowest and the fastest, one panel per model and
number of threads, and the bound that reading weights and state at the measured bandwidth
sets for samebit.`,
		Example: `  samebit bench plot pairs.json --over depth -o docs/performance-depth.svg
  samebit bench plot pairs.json --over batch --models qwen3-0.6b-f32.gguf -o batch.svg`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("takes one file of bench/peers/pair.py --json FILE, got %d", len(args))
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringVarP(&out, "output", "o", "", "draw to `FILE`, .svg or .png")
	f.StringVar(&over, "over", "depth", "`AXIS` is depth or batch")
	f.StringSliceVar(&models, "models", nil, "`LIST` of models of the file (default: all that were measured so)")
	c.RunE = func(_ *cobra.Command, args []string) error {
		if err := oneOf("over", []string{"depth", "batch"}, over); err != nil {
			return err
		}
		if !strings.HasSuffix(out, ".svg") && !strings.HasSuffix(out, ".png") {
			return usagef("bench plot: --output %q: want a file that ends in .svg or .png", out)
		}
		p, err := bench.OpenPairs(args[0])
		if err != nil {
			return err
		}
		panels, err := pairPanels(p, models, over)
		if err != nil {
			return fmt.Errorf("bench plot: %s: %w", args[0], err)
		}
		return writePlots(out, "bench plot", panels...)
	}
	return c
}

// pairPanels draws each model of p, by numbers of threads, that was measured over that axis.
func pairPanels(p *bench.Pairs, models []string, over string) (panels []*plot.Plot, err error) {
	have := p.Models()
	for _, m := range models {
		if !slices.Contains(have, m) {
			return nil, fmt.Errorf("no model %s: have %s", m, strings.Join(have, ", "))
		}
	}
	if models == nil {
		models = have
	}
	test := map[string]string{"depth": "decode", "batch": "batch"}[over]
	for _, m := range models {
		all := p.Threads(m)
		for _, threads := range all {
			curves := p.Curves(m, threads, test)
			if len(curves) == 0 {
				continue
			}
			title := m
			if len(all) > 1 {
				title += ", threads: " + strconv.Itoa(threads)
			}
			panel, err := pairPanel(title, over, curves)
			if err != nil {
				return nil, err
			}
			panels = append(panels, panel)
		}
	}
	switch n := len(panels); {
	case n == 0:
		return nil, fmt.Errorf("nothing was measured over %s: run pair.py --tests %s", over, test)
	case n > mostPanels:
		return nil, fmt.Errorf("%d panels, a plot has room for %d: name some models with --models", n, mostPanels)
	}
	return panels, nil
}

// pairPanel draws the curves of one model.
func pairPanel(title, over string, curves []bench.Curve) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, "tokens before", "tokens/s"
	at := func(x int) float64 { return float64(x) }
	if over == "batch" {
		p.X.Label.Text = "sequences that decode together"
		at = func(x int) float64 { return math.Log2(float64(max(x, 1))) }
	}
	p.Y.Min = 0
	p.Legend.Top, p.Legend.Left = true, over == "batch"
	p.Legend.TextStyle.Font.Size = vg.Points(8)
	p.Add(plotter.NewGrid())
	var ticks []plot.Tick
	top := 0.0
	for n, c := range curves {
		var line points
		for _, q := range c.Points {
			m := bench.Median(q.Rates)
			line.XYs = append(line.XYs, plotter.XY{X: at(q.X), Y: m})
			line.YErrors = append(line.YErrors, struct{ Low, High float64 }{m - slices.Min(q.Rates), slices.Max(q.Rates) - m})
			top = max(top, slices.Max(q.Rates))
			if t := (plot.Tick{Value: at(q.X), Label: strconv.Itoa(q.X)}); !slices.Contains(ticks, t) {
				ticks = append(ticks, t)
			}
		}
		l, marks, err := plotter.NewLinePoints(line.XYs)
		if err != nil {
			return nil, err
		}
		col := colours[n%len(colours)]
		if strings.HasPrefix(c.Name, "bound") {
			col = color.RGBA{0, 0, 0, 255}
		}
		l.Color, l.Width, l.Dashes = col, vg.Points(1.5), dashes[n%len(dashes)]
		marks.Color, marks.Shape = col, draw.CircleGlyph{}
		bars, err := plotter.NewYErrorBars(line)
		if err != nil {
			return nil, err
		}
		bars.Color = col
		p.Add(l, marks, bars)
		p.Legend.Add(c.Name, l, marks)
	}
	p.Y.Max = 1.35 * top // room for the legend
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.ConstantTicks(ticks), roundTicks{}
	return p, nil
}

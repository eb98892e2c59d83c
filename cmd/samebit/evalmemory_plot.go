package main

import (
	"errors"
	"fmt"
	"image/color"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"samebit/qcc/eval"
)

// plotMemory draws right answers, in parts of those of the full cache, against the
// bytes of the memory, with 95 % intervals.
func plotMemory(path string, totals []eval.Total) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = "what memories of constant size remember", "bytes of the memory, KiB", "right answers, % of those of the full cache"
	p.Y.Min = 0
	p.Legend.Top, p.Legend.Left = true, false
	p.Legend.TextStyle.Font.Size = vg.Points(8)
	p.Add(plotter.NewGrid())
	p.X.Min, p.X.Max = math.Inf(1), math.Inf(-1)
	full := 0.0
	var names []string
	for _, t := range totals {
		if !slices.Contains(names, t.Method) && !strings.HasSuffix(t.Method, eval.BareWindow) { // those are points of the line of windows
			names = append(names, t.Method)
		}
	}
	for n, method := range names {
		var line points
		for _, t := range totals {
			if t.Method != method || t.Right.N == 0 {
				continue
			}
			if method == eval.Full {
				full = t.Bytes / 1024
				continue
			}
			x, r := math.Log2(t.Bytes/1024), t.Relative
			p.X.Min, p.X.Max = min(p.X.Min, x), max(p.X.Max, x)
			line.XYs = append(line.XYs, plotter.XY{X: x, Y: 100 * r.Mean})
			line.YErrors = append(line.YErrors, struct{ Low, High float64 }{100 * (r.Mean - r.Low), 100 * (r.High - r.Mean)})
		}
		if len(line.XYs) == 0 {
			continue
		}
		l, marks, err := plotter.NewLinePoints(line.XYs)
		if err != nil {
			return err
		}
		bars, err := plotter.NewYErrorBars(line)
		if err != nil {
			return err
		}
		col := colours[n%len(colours)]
		l.Color, l.Width, l.Dashes = col, vg.Points(1.5), dashes[(n+n/len(colours))%len(dashes)] // a colour that comes again has other dashes
		marks.Color, marks.Shape = col, draw.CircleGlyph{}
		if n >= len(colours) {
			marks.Shape = draw.TriangleGlyph{}
		}
		bars.Color = col
		p.Add(l, marks, bars)
		p.Legend.Add(method, l, marks)
	}
	if math.IsInf(p.X.Min, 0) {
		return errors.New("eval-memory: plot: no memory of constant size was asked: leave --plot out, or name one")
	}
	f := plotter.NewFunction(func(float64) float64 { return 100 })
	f.Color, f.Width = color.Black, vg.Points(1)
	p.Add(f)
	p.Legend.Add(fmt.Sprintf("full, %.0f KiB on average", full), f)
	p.X.Min, p.X.Max = p.X.Min-0.3, p.X.Max+1.5 // room for the legend
	f.XMin, f.XMax = p.X.Min, p.X.Max
	p.Y.Max = max(p.Y.Max, 110)
	var ticks []plot.Tick
	for e := math.Ceil(p.X.Min); e <= p.X.Max; e++ {
		ticks = append(ticks, plot.Tick{Value: e, Label: strconv.FormatFloat(math.Exp2(e), 'f', -1, 64)})
	}
	p.X.Tick.Marker = plot.ConstantTicks(ticks)
	return writePlots(path, "eval-memory", p)
}

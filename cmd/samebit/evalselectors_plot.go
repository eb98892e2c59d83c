package main

import (
	"errors"
	"image/color"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"samebit/rclc/eval"
)

// plotRows draws the share of right answers, and the share of the evidence that
// arrived, against the ratio, with 95 % intervals.
func plotRows(path string, kind string, rows []eval.Row) error {
	title := "right answers"
	if kind != "" {
		title += ", " + kind
	}
	left, err := panel(title, "answers that hold the right one, %", kind, rows, func(r eval.Row) eval.Interval { return r.Contains })
	if err != nil {
		return err
	}
	right, err := panel("evidence that arrived", "of the evidence's positions, %", kind, rows, func(r eval.Row) eval.Interval { return r.Recall })
	if err != nil {
		return err
	}
	return writePlots(path, "eval-selectors", left, right)
}

func panel(title, y, kind string, rows []eval.Row, value func(eval.Row) eval.Interval) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, "ratio (positions of the senders per position sent)", y
	p.Y.Min, p.Y.Max = 0, 100
	p.Legend.Top, p.Legend.Left = true, false
	p.Legend.TextStyle.Font.Size = vg.Points(8)
	var tens []plot.Tick
	for v := 0; v <= 100; v += 20 {
		tens = append(tens, plot.Tick{Value: float64(v), Label: strconv.Itoa(v)})
	}
	p.Y.Tick.Marker = plot.ConstantTicks(tens)
	p.Add(plotter.NewGrid())
	var ticks []plot.Tick
	var flats []*plotter.Function // methods without a ratio
	seen := map[int]bool{}
	for n, method := range eval.Methods {
		var line points
		flat := math.NaN()
		for _, r := range rows {
			if r.Kind != kind || r.Method != method || value(r).N == 0 {
				continue
			}
			v := value(r)
			if r.Ratio == 0 {
				flat = 100 * v.Mean
				continue
			}
			x := math.Log2(float64(r.Ratio))
			// beside each other, so that intervals can be told apart
			line.XYs = append(line.XYs, plotter.XY{X: x + 0.05*float64(n-2), Y: 100 * v.Mean})
			line.YErrors = append(line.YErrors, struct{ Low, High float64 }{100 * (v.Mean - v.Low), 100 * (v.High - v.Mean)})
			if !seen[r.Ratio] {
				seen[r.Ratio] = true
				ticks = append(ticks, plot.Tick{Value: x, Label: strconv.Itoa(r.Ratio)})
			}
		}
		switch {
		case len(line.XYs) > 0:
			l, marks, err := plotter.NewLinePoints(line.XYs)
			if err != nil {
				return nil, err
			}
			bars, err := plotter.NewYErrorBars(line)
			if err != nil {
				return nil, err
			}
			col := colours[n%len(colours)]
			l.Color, l.Width, l.Dashes = col, vg.Points(1.5), dashes[n%len(dashes)]
			marks.Color, marks.Shape = col, draw.CircleGlyph{}
			bars.Color = col
			p.Add(l, marks, bars)
			p.Legend.Add(method, l, marks)
		case !math.IsNaN(flat):
			f := plotter.NewFunction(func(float64) float64 { return flat })
			f.Color, f.Width, f.Dashes = color.Black, vg.Points(1), dashes[(n+1)%len(dashes)]
			flats = append(flats, f)
			p.Add(f)
			p.Legend.Add(method, f)
		}
	}
	if len(ticks) == 0 {
		return nil, errors.New("eval-selectors: plot: no result has a ratio: leave --plot out, or compare a selector")
	}
	p.X.Tick.Marker = plot.ConstantTicks(ticks)
	p.X.Min, p.X.Max = ticks[0].Value, ticks[0].Value
	for _, t := range ticks {
		p.X.Min, p.X.Max = min(p.X.Min, t.Value), max(p.X.Max, t.Value)
	}
	for _, f := range flats {
		f.XMin, f.XMax = p.X.Min-0.2, p.X.Max+0.2
	}
	p.X.Min, p.X.Max = p.X.Min-0.2, p.X.Max+1.2 // room for the legend
	return p, nil
}

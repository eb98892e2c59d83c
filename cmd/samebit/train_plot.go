package main

import (
	"fmt"
	"image/color"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"samebit/train"
	"samebit/train/tasks"
)

// plotTraining draws the losses of a training, and what its validations found,
// against the steps.
func plotTraining(path, dir string) error {
	points, err := train.ReadLog(dir)
	if err != nil {
		return err
	}
	if len(points) == 0 {
		return fmt.Errorf("train: plot: %s has no steps yet", dir)
	}
	left, right := plot.New(), plot.New()
	left.Title.Text, left.X.Label.Text, left.Y.Label.Text = "loss", "step", "nats per token"
	right.Title.Text, right.X.Label.Text, right.Y.Label.Text = "held-out questions", "step", "right answers, %"
	right.Y.Min, right.Y.Max = 0, 100
	for _, p := range []*plot.Plot{left, right} {
		p.Add(plotter.NewGrid())
		p.X.Min, p.X.Max = 0, float64(points[len(points)-1].Step)
	}
	var faint, training, answers, prose, recall plotter.XYs
	every := max(1, len(points)/400) // a few hundred means tell what thousands of steps did
	sum, n := 0.0, 0
	for i, p := range points {
		x := float64(p.Step)
		if !math.IsNaN(p.Answers) {
			sum, n = sum+p.Answers, n+1
		}
		if (i+1)%every == 0 && n > 0 {
			training = append(training, plotter.XY{X: x, Y: sum / float64(n)})
			sum, n = 0, 0
		}
		if i%every == 0 {
			faint = append(faint, plotter.XY{X: x, Y: p.Loss})
		}
		if !math.IsNaN(p.Recall) {
			answers = append(answers, plotter.XY{X: x, Y: p.AnswerLoss})
			recall = append(recall, plotter.XY{X: x, Y: 100 * p.Recall})
			if p.ProseLoss > 0 {
				prose = append(prose, plotter.XY{X: x, Y: p.ProseLoss})
			}
		}
	}
	left.Y.Min = 0
	l, err := plotter.NewLine(faint)
	if err != nil {
		return err
	}
	l.Color, l.Width = color.RGBA{170, 170, 170, 255}, vg.Points(0.6)
	left.Add(l)
	left.Legend.Top = true
	left.Legend.Add("all rows, weighted", l)
	right.Legend.Top, right.Legend.YOffs = false, vg.Points(10)
	for _, err := range []error{
		addLine(left, "answers, training", 0, training), addLine(left, "answers, held out", 1, answers), addLine(left, "prose, held out", 2, prose),
		addLine(right, "recall, all lengths", 3, recall),
	} {
		if err != nil {
			return err
		}
	}
	return writePlots(path, "train", left, right)
}

// addLine draws a line of the n-th colour, unless it has no points.
func addLine(p *plot.Plot, name string, n int, line plotter.XYs) error {
	if len(line) == 0 {
		return nil
	}
	l, err := plotter.NewLine(line)
	if err != nil {
		return err
	}
	l.Color, l.Width, l.Dashes = colours[n], vg.Points(1.2), dashes[n]
	p.Add(l)
	p.Legend.Add(name, l)
	return nil
}

// plotJudgement draws right answers by kind against the length of the text.
func plotJudgement(path string, j *train.Judgement) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = "held-out questions", "tokens of text before the question", "right answers, %"
	p.Y.Min, p.Y.Max = 0, 100
	p.Add(plotter.NewGrid())
	p.Legend.Top = false
	var ticks []plot.Tick
	line := func(name string, n int, width vg.Length, points plotter.XYs) error {
		l, marks, err := plotter.NewLinePoints(points)
		if err != nil {
			return err
		}
		l.Color, l.Width, l.Dashes = colours[n], width, dashes[n]
		marks.Color, marks.Shape = colours[n], draw.CircleGlyph{}
		p.Add(l, marks)
		p.Legend.Add(name, l, marks)
		return nil
	}
	var all plotter.XYs
	for n, kind := range tasks.Kinds {
		var points plotter.XYs
		for _, r := range j.Recall {
			if r.Kind != kind {
				continue
			}
			x := math.Log2(float64(r.Rows))
			points = append(points, plotter.XY{X: x, Y: 100 * float64(r.Right) / float64(max(1, r.Questions))})
			if n == 0 {
				ticks = append(ticks, plot.Tick{Value: x, Label: strconv.Itoa(r.Rows)})
				all = append(all, plotter.XY{X: x, Y: 100 * j.Share(r.Rows)})
			}
		}
		if err := line(string(kind), n, vg.Points(1), points); err != nil {
			return err
		}
	}
	if err := line("recall", len(tasks.Kinds), vg.Points(2), all); err != nil {
		return err
	}
	p.X.Tick.Marker = plot.ConstantTicks(ticks)
	p.X.Min, p.X.Max = ticks[0].Value-0.2, ticks[len(ticks)-1].Value+1.5 // room for the legend
	return writePlots(path, "judge", p)
}

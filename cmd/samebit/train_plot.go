package main

import (
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"samebit/train"
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
	add := func(p *plot.Plot, name string, n int, line plotter.XYs) error {
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
		add(left, "answers, training", 0, training), add(left, "answers, held out", 1, answers), add(left, "prose, held out", 2, prose),
		add(right, "recall, all lengths", 3, recall),
	} {
		if err != nil {
			return err
		}
	}
	return writePlots(path, "train", left, right)
}

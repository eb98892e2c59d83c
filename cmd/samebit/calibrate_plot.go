package main

import (
	"fmt"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"samebit/qcc/calib"
)

// plotCalibration draws losses, and how close held-out logits were, against the steps.
func plotCalibration(path, dir string) error {
	points, err := calib.ReadLog(dir)
	if err != nil {
		return err
	}
	if len(points) == 0 {
		return fmt.Errorf("calibrate: plot: %s has no steps yet", dir)
	}
	left, right := plot.New(), plot.New()
	left.Title.Text, left.X.Label.Text, left.Y.Label.Text = "loss", "step", "loss of a step"
	right.Title.Text, right.X.Label.Text, right.Y.Label.Text = "held-out text, rows beyond the window", "step", "next to full attention"
	var loss, logits, outputs, cosine, top1, kl plotter.XYs
	for _, p := range points {
		x := float64(p.Step)
		loss = append(loss, plotter.XY{X: x, Y: p.Loss})
		logits = append(logits, plotter.XY{X: x, Y: p.Logits})
		if p.Attention > 0 {
			outputs = append(outputs, plotter.XY{X: x, Y: p.Attention})
		}
		if !math.IsNaN(p.Cosine) {
			cosine = append(cosine, plotter.XY{X: x, Y: p.Cosine})
			top1 = append(top1, plotter.XY{X: x, Y: p.Top1})
			kl = append(kl, plotter.XY{X: x, Y: p.KL})
		}
	}
	for _, p := range []*plot.Plot{left, right} {
		p.Add(plotter.NewGrid())
		p.X.Min, p.X.Max, p.Y.Min = 0, float64(points[len(points)-1].Step), 0
	}
	left.Legend.Top = true
	right.Legend.Top, right.Legend.YOffs = false, vg.Points(10)
	for _, err := range []error{
		addLine(left, "logits", 1, logits), addLine(left, "outputs of layers", 2, outputs), addLine(left, "both, weighted", 0, loss),
		addLine(right, "cosine of logits", 0, cosine), addLine(right, "same first choice", 1, top1), addLine(right, "KL, nats", 2, kl),
	} {
		if err != nil {
			return err
		}
	}
	return writePlots(path, "calibrate", left, right)
}

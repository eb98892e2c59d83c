package main

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"samebit/internal/wholefile"
)

// colours are easy to tell apart, also for those who see red and green as one; the
// dashes help the others.
var colours = []color.RGBA{{0, 114, 178, 255}, {213, 94, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255}, {120, 120, 120, 255}, {230, 159, 0, 255}}

var dashes = [][]vg.Length{nil, {6, 3}, {2, 2}, {8, 2, 2, 2}, {1, 3}, {4, 4}}

// points are values with errors.
type points struct {
	plotter.XYs
	plotter.YErrors
}

// canvas is what an image file of a size is drawn on.
func canvas(path, command string, w, h vg.Length) (vg.CanvasWriterTo, error) {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".svg":
		return vgsvg.New(w, h), nil
	case ".png":
		return vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(w, h), vgimg.UseDPI(150))}, nil
	}
	return nil, fmt.Errorf("%s: plot %s: name a file that ends in .svg or .png", command, path)
}

// writePlots writes plots beside each other to an image file.
func writePlots(path, command string, plots ...*plot.Plot) error {
	c, err := canvas(path, command, vg.Length(len(plots))*5*vg.Inch, 4*vg.Inch)
	if err != nil {
		return err
	}
	dc := draw.New(c)
	tiles := draw.Tiles{Rows: 1, Cols: len(plots), PadX: vg.Points(14), PadTop: vg.Points(6), PadBottom: vg.Points(6), PadLeft: vg.Points(6), PadRight: vg.Points(6)}
	for i, p := range plot.Align([][]*plot.Plot{plots}, tiles, dc)[0] {
		legendRight(plots[i], plots[i].DataCanvas(p))
		plots[i].Draw(p)
	}
	return wholefile.Write(path, func(w io.Writer) error {
		_, err := c.WriteTo(w)
		return err
	})
}

// legendRight lets the entries of a legend on the right begin behind their lines. Set to
// end before them they would cover them wherever the reader's font is wider than ours,
// which an SVG only names; here they have room for a quarter more.
func legendRight(p *plot.Plot, data draw.Canvas) {
	l := &p.Legend
	if l.Left {
		return
	}
	text := l.Rectangle(data).Size().X - l.ThumbnailWidth
	l.Left = true
	l.XOffs += data.Size().X - l.ThumbnailWidth - text*5/4
}

// roundTicks are four to ten multiples of 1, 2 or 5 times a power of ten.
type roundTicks struct{}

func (roundTicks) Ticks(lo, hi float64) (ticks []plot.Tick) {
	step := math.Pow(10, math.Floor(math.Log10((hi-lo)/4)))
	for _, m := range []float64{5, 2} {
		if m*step <= (hi-lo)/4 {
			step *= m
			break
		}
	}
	for i := math.Ceil(lo / step); i*step <= hi; i++ {
		ticks = append(ticks, plot.Tick{Value: i * step, Label: strconv.FormatFloat(i*step, 'g', 6, 64)})
	}
	return ticks
}

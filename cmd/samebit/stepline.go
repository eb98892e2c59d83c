package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// stepLine is a line on a terminal that changes with the steps of a training, and
// nothing elsewhere.
type stepLine struct {
	w        io.Writer
	terminal bool
	total    int
	began    time.Time
	first    int // step that this process made first
	last     int
	shown    time.Time
}

func newStepLine(w io.Writer, total int) *stepLine {
	return &stepLine{w: w, terminal: term.IsTerminal(int(os.Stderr.Fd())), total: total, began: time.Now()}
}

// made notes a step and estimates the time that is left.
func (p *stepLine) made(step int) (left time.Duration) {
	if p.first == 0 {
		p.first = step
	}
	p.last = step
	return time.Duration(float64(time.Since(p.began)) / float64(step-p.first+1) * float64(p.total-step)).Round(time.Second)
}

// show changes the line, not too often.
func (p *stepLine) show(format string, args ...any) {
	if p.terminal && time.Since(p.shown) > 200*time.Millisecond {
		p.shown = time.Now()
		fmt.Fprintf(p.w, "\r\x1b[K"+format, args...)
	}
}

// clear wipes the line.
func (p *stepLine) clear() {
	if p.terminal {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

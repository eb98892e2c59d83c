package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"

	"golang.org/x/term"
)

// maxTurn bounds a line of standard input.
const maxTurn = 16 << 20

// lines reads turns, with line editing and history on a terminal.
type lines struct {
	in    *os.File
	scan  *bufio.Scanner
	edit  *term.Terminal // nil without a terminal
	out   io.Writer
	keys  *keys
	hints int
}

func newLines(in, out *os.File) *lines {
	l := &lines{in: in, out: out}
	if !term.IsTerminal(int(in.Fd())) || !term.IsTerminal(int(out.Fd())) {
		l.scan = bufio.NewScanner(in)
		l.scan.Buffer(nil, maxTurn)
		return l
	}
	l.keys = &keys{r: in}
	l.edit = term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{l.keys, out}, "> ")
	l.edit.History = &history{}
	return l
}

func (l *lines) terminal() bool { return l.edit != nil }

// read returns one turn; lines that end with a backslash are joined, and so is
// what is pasted. It gives up with errInterrupted when the context ends, or at an
// interrupt without a terminal: with one, Ctrl-C is a key that drops the line.
func (l *lines) read(ctx context.Context, interrupts <-chan os.Signal) (string, error) {
	type result struct {
		turn string
		err  error
	}
	var restore func()
	if l.edit != nil {
		// Raw mode only while editing: during an answer Ctrl-C must be a signal.
		fd := int(l.in.Fd())
		old, err := term.MakeRaw(fd)
		if err != nil {
			return "", fmt.Errorf("chat: reading the terminal: %w", err)
		}
		l.edit.SetBracketedPasteMode(true)
		restore = func() {
			l.edit.SetBracketedPasteMode(false)
			term.Restore(fd, old)
		}
		defer restore()
		if w, h, err := term.GetSize(fd); err == nil && w > 0 {
			l.edit.SetSize(w, h)
		}
	}
	got := make(chan result, 1)
	go func() { // a read cannot be interrupted; the program ends without it
		turn, err := l.turn()
		got <- result{turn, err}
	}()
	for {
		select {
		case r := <-got:
			return r.turn, r.err
		case <-ctx.Done():
			if l.edit != nil {
				io.WriteString(l.out, "\r\n") // leave the line that is being edited
			}
			return "", errInterrupted
		case <-interrupts:
			if l.edit == nil {
				return "", errInterrupted
			}
		}
	}
}

func (l *lines) turn() (string, error) {
	var turn strings.Builder
	for {
		line, pasted, err := l.line()
		if errors.Is(err, errInterrupted) {
			turn.Reset()
			if l.hints++; l.hints == 1 {
				io.WriteString(l.edit, "Ctrl-D or /exit leaves the program.\n")
			}
			continue
		}
		if err != nil {
			if errors.Is(err, io.EOF) && turn.Len() > 0 {
				return turn.String(), nil
			}
			return "", err
		}
		rest, more := strings.CutSuffix(line, `\`)
		if pasted {
			rest, more = line, true
		}
		turn.WriteString(rest)
		if !more {
			return strings.TrimRight(turn.String(), "\n"), nil
		}
		turn.WriteByte('\n')
	}
}

func (l *lines) line() (line string, pasted bool, err error) {
	if l.edit == nil {
		if l.scan.Scan() {
			return l.scan.Text(), false, nil
		}
		if err := l.scan.Err(); err != nil {
			return "", false, fmt.Errorf("chat: reading standard input: %w", err)
		}
		return "", false, io.EOF
	}
	line, err = l.edit.ReadLine()
	if errors.Is(err, term.ErrPasteIndicator) {
		return line, true, nil
	}
	if err == nil && l.keys.interrupted.Swap(false) {
		err = errInterrupted
	}
	return line, false, err
}

// keys turns Ctrl-C, which the line editor takes for the end of the input, into
// the keys that empty the line and enter it.
type keys struct {
	r           io.Reader
	left        []byte
	interrupted atomic.Bool
}

func (k *keys) Read(p []byte) (int, error) {
	if len(k.left) == 0 {
		buf := make([]byte, 256)
		n, err := k.r.Read(buf)
		if n == 0 {
			return 0, err
		}
		k.left = buf[:n]
		const ctrlC = 0x03
		if i := bytes.LastIndexByte(k.left, ctrlC); i >= 0 {
			const end, kill = "\x05", "\x15"
			k.left = append([]byte(end+kill+"\r"), k.left[i+1:]...)
			k.interrupted.Store(true)
		}
	}
	n := copy(p, k.left)
	k.left = k.left[n:]
	return n, nil
}

// history are the lines that the arrow keys bring back, without empty ones.
type history struct{ lines []string }

func (h *history) Add(line string) {
	if line == "" || len(h.lines) > 0 && h.lines[len(h.lines)-1] == line {
		return
	}
	h.lines = append(h.lines, line)
}

func (h *history) Len() int { return len(h.lines) }

// At returns the i-th line, the newest at 0.
func (h *history) At(i int) string { return h.lines[len(h.lines)-1-i] }

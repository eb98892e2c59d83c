package natsbus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"samebit/rclc"
)

// most is more writes than a delivery takes; where they are fewer, the test ends
// earlier.
func most(t *testing.T) int {
	if testing.Short() {
		return 8
	}
	return 60
}

// eachWrite calls f with n = 0, 1, ... and with whole and half writes, until
// nothing is left to kill: f reports whether anything was.
func eachWrite(t *testing.T, f func(t *testing.T, n int, half bool) bool) {
	n := 0
	for ; n < most(t); n++ {
		whole := f(t, n, false)
		if half := f(t, n, true); !whole && !half {
			break
		}
		if t.Failed() {
			return
		}
	}
	if n < 5 {
		t.Errorf("only %d writes were there to be killed: the test tests nothing", n)
	}
}

// The process of a sender dies at its nth write. What was acknowledged arrives, and
// what was not arrives once when another process sends it again.
func TestBusSenderDiesAtEveryWrite(t *testing.T) {
	noLeak(t)
	m := tinyModel(t, "qwen3-bf16")
	srv := listen(t, nil)
	d := newDelivery(t, m, 250, 1) // three parts
	want := fileOf(t, d)
	b := openBus(t, Config{URL: srv.ClientURL()}, BusConfig{})
	r := newReceiver(t, b, ReceiverConfig{Name: "ann", Model: m})
	acknowledged, lost := 0, 0
	eachWrite(t, func(t *testing.T, n int, half bool) bool {
		c, cancel := context.WithCancel(ctx)
		defer cancel()
		k := &killer{forever: true, half: half, left: -1, died: cancel}
		from := openBus(t, Config{URL: srv.ClientURL(), Timeout: time.Second, wrap: k.wrap}, BusConfig{})
		from.pay.chunk = 512
		id := fmt.Sprintf("n%d-%v", n, half)
		k.arm(n)
		err := from.Send(c, "ann", id, d)
		died := k.disarm()
		from.Close()
		if !died && err != nil {
			t.Fatalf("nothing died, but %v", err)
		}
		q := newQueue(t)
		drain(t, b, q, r)
		got := len(q.list())
		switch {
		case got > 1, err == nil && got != 1:
			t.Errorf("write %d, half %v: Send returned %v, received %d", n, half, err, got)
		case err != nil:
			lost++
		default:
			acknowledged++
		}
		if err != nil {
			if err := b.Send(ctx, "ann", id, d); err != nil {
				t.Fatal(err)
			}
			drain(t, b, q, r)
		}
		if l := q.list(); len(l) != 1 || !bytes.Equal(q.files[id], want) {
			t.Errorf("write %d, half %v: received %v after it was sent again", n, half, l)
		}
		return died
	})
	if acknowledged == 0 || lost == 0 {
		t.Errorf("%d were acknowledged and %d not: the test tests half", acknowledged, lost)
	}
	if l, err := b.Dead(ctx); err != nil || len(l) != 0 {
		t.Errorf("dead letters %v, %v", l, err)
	}
	noPayload(t, b)
}

// The connection of a sender breaks at its nth write, and comes back.
func TestBusSenderLosesItsConnection(t *testing.T) {
	noLeak(t)
	m := tinyModel(t, "qwen3-bf16")
	srv := listen(t, nil)
	d := newDelivery(t, m, 250, 1)
	b := openBus(t, Config{URL: srv.ClientURL()}, BusConfig{})
	q := newQueue(t)
	r := newReceiver(t, b, ReceiverConfig{Name: "ann", Model: m})
	sent := 0
	eachWrite(t, func(t *testing.T, n int, half bool) bool {
		k := &killer{half: half, left: -1}
		from := openBus(t, Config{URL: srv.ClientURL(), Timeout: time.Second, wrap: k.wrap}, BusConfig{})
		defer from.Close()
		from.pay.chunk = 512
		k.arm(n)
		if err := from.Send(ctx, "ann", fmt.Sprintf("n%d-%v", n, half), d); err != nil {
			t.Errorf("write %d, half %v: %v", n, half, err)
		}
		sent++
		return k.disarm()
	})
	drain(t, b, q, r)
	got := q.list()
	if slices.Sort(got); len(got) != sent || len(slices.Compact(got)) != sent {
		t.Errorf("%d sent, received %d: %v", sent, len(got), got)
	}
	noPayload(t, b)
}

// The connection of a receiver breaks at its nth write, and comes back: everything
// is taken once.
func TestBusReceiverLosesItsConnection(t *testing.T) {
	noLeak(t)
	m := tinyModel(t, "qwen3-bf16")
	srv := listen(t, nil)
	d := newDelivery(t, m, 150, 1)
	b := openBus(t, Config{URL: srv.ClientURL()}, BusConfig{})
	eachWrite(t, func(t *testing.T, n int, half bool) bool {
		k := &killer{half: half, left: -1}
		to := openBus(t, Config{URL: srv.ClientURL(), Timeout: time.Second, wrap: k.wrap}, BusConfig{AckWait: 300 * time.Millisecond})
		defer to.Close()
		name := fmt.Sprintf("ann%d-%v", n, half)
		r := newReceiver(t, to, ReceiverConfig{Name: name, Model: m})
		for i := range 2 {
			if err := b.Send(ctx, name, fmt.Sprint("d", i), d); err != nil {
				t.Fatal(err)
			}
		}
		q := newQueue(t)
		k.arm(n)
		drain(t, b, q, r)
		if got := q.list(); !slices.Equal(got, []string{"d0", "d1"}) {
			t.Errorf("write %d, half %v: received %v", n, half, got)
		}
		return k.disarm()
	})
	noPayload(t, b)
}

// The process of a receiver dies at its nth write. The next one, with the same
// folder, has everything once; what the first acknowledged is in the folder.
func TestBusReceiverDiesAtEveryWrite(t *testing.T) {
	noLeak(t)
	m := tinyModel(t, "qwen3-bf16")
	srv := listen(t, nil)
	d := newDelivery(t, m, 150, 1)
	want := fileOf(t, d)
	b := openBus(t, Config{URL: srv.ClientURL()}, BusConfig{AckWait: 300 * time.Millisecond})
	eachWrite(t, func(t *testing.T, n int, half bool) bool {
		dir, name := t.TempDir(), fmt.Sprintf("ann%d-%v", n, half)
		for i := range 2 {
			if err := b.Send(ctx, name, fmt.Sprint("d", i), d); err != nil {
				t.Fatal(err)
			}
		}
		c, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		k := &killer{forever: true, half: half, left: -1, died: cancel}
		to := openBus(t, Config{URL: srv.ClientURL(), Timeout: time.Second, wrap: k.wrap}, BusConfig{AckWait: 300 * time.Millisecond})
		first := newReceiver(t, to, ReceiverConfig{Name: name, Model: m, Dir: dir})
		k.arm(n)
		q := newQueue(t)
		go func() { // nothing is left to kill
			for len(q.list()) < 2 && c.Err() == nil {
				time.Sleep(5 * time.Millisecond)
			}
			time.Sleep(50 * time.Millisecond)
			cancel()
		}()
		if err := first.Run(c, q.take); err == nil {
			t.Error("Run returns nil")
		}
		died := k.disarm()
		to.Close()
		first.Close()
		if got := q.list(); len(slices.Compact(slices.Sorted(slices.Values(got)))) != len(got) {
			t.Errorf("write %d, half %v: one process received %v", n, half, got)
		}
		again := newQueue(t)
		next := newReceiver(t, b, ReceiverConfig{Name: name, Model: m, Dir: dir})
		c2, cancel2 := context.WithTimeout(ctx, 10*time.Second)
		defer cancel2()
		go func() {
			for len(again.list()) < 2 && c2.Err() == nil {
				time.Sleep(5 * time.Millisecond)
			}
			waitEmpty(t, b)
			cancel2()
		}()
		if err := next.Run(c2, again.take); !errors.Is(err, context.Canceled) {
			t.Errorf("the next process: %v", err)
		}
		next.Close()
		if got := again.list(); !slices.Equal(got, []string{"d0", "d1"}) || !bytes.Equal(again.files["d0"], want) || !bytes.Equal(again.files["d1"], want) {
			t.Errorf("write %d, half %v: the next process received %v", n, half, got)
		}
		return died
	})
	noPayload(t, b)
}

// disarm reports whether anything died, and lets nothing die from now on.
func (k *killer) disarm() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.left = -1
	return k.fired
}

const busChildEnv = "SAMEBIT_BUS_TEST_CHILD" // URL, name, folder and the step at which to die

// TestBusChild is a receiver's process that dies at a given step: at any change of
// the folder, and around the handler.
func TestBusChild(t *testing.T) {
	f := strings.Split(os.Getenv(busChildEnv), "|")
	if len(f) != 4 {
		t.Skip("only as a child")
	}
	left, err := strconv.Atoi(f[3])
	if err != nil {
		t.Fatal(err)
	}
	step := func(point string) {
		if left == 0 {
			fmt.Println("died " + point)
			os.Exit(7)
		}
		left--
	}
	b, err := OpenBus(ctx, Config{URL: f[0], fault: step}, BusConfig{AckWait: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	r, err := b.Receiver(ctx, ReceiverConfig{Name: f[1], Dir: f[2]})
	if err != nil {
		t.Fatal(err)
	}
	c, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		waitEmpty(t, b)
		time.Sleep(20 * time.Millisecond)
		cancel()
	}()
	err = r.Run(c, func(_ context.Context, id string, _ rclc.Delivery) error {
		fmt.Println("took " + id)
		if id == "a" { // b is never done
			err := r.Done(id)
			fmt.Println("done " + id)
			return err
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	fmt.Println("finished")
}

// A receiver's process is killed at every step it takes; another one follows. In
// the folder everything is once and whole, and nothing is handed over that was done.
func TestBusKilledProcess(t *testing.T) {
	m := tinyModel(t, "qwen3-bf16")
	d := newDelivery(t, m, 60, 1)
	want := fileOf(t, d)
	exe, err := os.Executable()
	if err != nil {
		t.Skip(err)
	}
	srv := listen(t, nil)
	b := openBus(t, Config{URL: srv.ClientURL()}, BusConfig{AckWait: 300 * time.Millisecond})
	points := map[string]bool{}
	every := 1
	if testing.Short() {
		every = 4
	}
	for step, died := 0, true; died; step += every {
		if step > 60 {
			t.Fatal("processes die at more steps than there are")
		}
		name, dir := fmt.Sprint("ann", step), t.TempDir()
		for _, id := range []string{"a", "b"} {
			if err := b.Send(ctx, name, id, d); err != nil {
				t.Fatal(err)
			}
		}
		done := map[string]bool{}
		for _, left := range []int{step, -1} {
			c := exec.Command(exe, "-test.run=^TestBusChild$", "-test.count=1")
			c.Env = append(os.Environ(), fmt.Sprintf("%s=%s|%s|%s|%d", busChildEnv, srv.ClientURL(), name, dir, left))
			out, err := c.Output()
			taken, finished := map[string]bool{}, false
			for line := range strings.Lines(string(out)) {
				verb, what, _ := strings.Cut(strings.TrimSpace(line), " ")
				switch verb {
				case "took":
					if taken[what] || done[what] {
						t.Errorf("step %d: %s is handed over twice, or after it was done: %s", step, what, out)
					}
					taken[what] = true
				case "done":
					done[what] = true
				case "died":
					points[what] = true
				case "finished":
					finished = true
				}
			}
			switch died = !finished; {
			case died && (left < 0 || c.ProcessState.ExitCode() != 7):
				t.Fatalf("step %d: the process failed: %v: %s", step, err, out)
			case died && done["a"]:
				// It is in the folder as done.
			case left < 0 && !taken["b"]:
				t.Errorf("step %d: b was not handed over by the last process: %s", step, out)
			}
			checkFolder(t, step, dir, want, finished)
			if !died && left >= 0 {
				break
			}
			died = true
		}
	}
	if len(points) < 10 && !testing.Short() {
		t.Errorf("processes died at %v only", points)
	}
	if l, err := b.Dead(ctx); err != nil || len(l) != 0 {
		t.Errorf("dead letters %v, %v", l, err)
	}
	noPayload(t, b)
}

// checkFolder checks what a process leaves: every file as a whole, every id once.
func checkFolder(t *testing.T, step int, dir string, want []byte, finished bool) {
	t.Helper()
	exts := map[string]string{}
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		_, id, ok := parseInboxName(f.Name())
		if !ok {
			if finished && f.Name() != lockName {
				t.Errorf("step %d: %s is left behind", step, f.Name())
			}
			continue
		}
		if exts[id] != "" {
			t.Errorf("step %d: %s is twice in the folder", step, id)
		}
		exts[id] = filepath.Ext(f.Name())
		data, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if exts[id] == waitingExt && (err != nil || !bytes.Equal(data, want)) {
			t.Errorf("step %d: file %s is not whole: %v", step, f.Name(), err)
		}
	}
	if finished && (exts["a"] != doneExt || exts["b"] != waitingExt) {
		t.Errorf("step %d: in the end there are %v", step, exts)
	}
}

// A server that restarts, with senders and receivers at work.
func TestBusServerRestarts(t *testing.T) {
	noLeak(t)
	m := tinyModel(t, "qwen3-bf16")
	dir := t.TempDir()
	port := -1
	start := func() *server.Server {
		return listen(t, func(o *server.Options) { o.StoreDir, o.Port = dir, port })
	}
	srv := start()
	port = srv.Addr().(*net.TCPAddr).Port
	url := srv.ClientURL()
	from := openBus(t, Config{URL: url, Timeout: time.Second}, BusConfig{})
	to := openBus(t, Config{URL: url, Timeout: time.Second}, BusConfig{AckWait: time.Second})
	r := newReceiver(t, to, ReceiverConfig{Name: "ann", Model: m})
	q := newQueue(t)
	c, cancel := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() { ran <- r.Run(c, q.take) }()
	d := newDelivery(t, m, 150, 1)
	const n = 12
	sent := make(chan error, 1)
	go func() {
		for i := range n {
			if err := from.Send(ctx, "ann", fmt.Sprintf("d%02d", i), d); err != nil {
				sent <- err
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		sent <- nil
	}()
	for range 2 {
		time.Sleep(40 * time.Millisecond)
		srv.Shutdown()
		srv.WaitForShutdown()
		time.Sleep(20 * time.Millisecond)
		srv = start()
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	waitEmpty(t, to)
	cancel()
	if err := <-ran; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	got := q.list()
	if len(got) != n || !slices.IsSorted(got) {
		t.Errorf("received %d: %v", len(got), got)
	}
	noPayload(t, to)
}

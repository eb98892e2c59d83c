package cache_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"samebit/cache"
	"samebit/cache/cachetest"
	"samebit/state"
)

const childEnv = "SAMEBIT_CACHE_TEST_CHILD" // folder, seed and turns of a child

// churn reads and writes entries of one folder, at a bound that lets few of them
// stay, and compares everything it reads.
func churn(t *testing.T, dir string, seed uint64, turns int) {
	d, err := cache.OpenDisk(dir, 60<<10)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	bed := cachetest.NewBed(t)
	k := cache.Key{Model: state.ID{9}}
	q, want := bed.Sequence(k.Model, 0), bed.Sequence(k.Model, 0)
	rng := rand.New(rand.NewPCG(seed, 1))
	ctx := context.Background()
	hits := 0
	for i := 0; i != turns; i++ {
		rows := tokens(rng.IntN(12), 20+rng.IntN(3)*40)
		e := cache.NewEntry(k, rows)
		if err := want.Reset(); err != nil {
			t.Fatal(err)
		}
		if err := want.Append(ctx, rows); err != nil {
			t.Fatal(err)
		}
		err := d.Get(ctx, e, q)
		if err == nil {
			hits++
			a, _ := q.Bytes()
			b, _ := want.Bytes()
			if len(a) == 0 || !bytes.Equal(a, b) {
				t.Fatalf("turn %d: %d rows come back with other bits", i, len(rows))
			}
			continue
		}
		if !errors.Is(err, cache.ErrNotFound) {
			t.Fatalf("turn %d: %v", i, err)
		}
		s, err := want.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		err = d.Put(ctx, e, s)
		s.Release()
		if err != nil {
			t.Fatalf("turn %d: %v", i, err)
		}
	}
	if hits == 0 {
		t.Error("no hit")
	}
}

// TestChild is the other process of the tests below.
func TestChild(t *testing.T) {
	f := strings.Split(os.Getenv(childEnv), "|")
	if len(f) != 3 {
		t.Skip("only as a child")
	}
	seed, err := strconv.ParseUint(f[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	turns, err := strconv.Atoi(f[2])
	if err != nil {
		t.Fatal(err)
	}
	churn(t, f[0], seed, turns)
}

func child(t *testing.T, dir string, seed, turns int) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Skip(err)
	}
	c := exec.Command(exe, "-test.run=^TestChild$", "-test.count=1")
	c.Env = append(os.Environ(), fmt.Sprintf("%s=%s|%d|%d", childEnv, dir, seed, turns))
	c.Stdout, c.Stderr = new(bytes.Buffer), nil
	if err := c.Start(); err != nil {
		t.Skipf("no second process here: %v", err)
	}
	return c
}

func TestProcessesShareAFolder(t *testing.T) {
	turns := 150
	if testing.Short() {
		turns = 40
	}
	dir := t.TempDir()
	a, b := child(t, dir, 1, turns), child(t, dir, 2, turns)
	churn(t, dir, 3, turns)
	for _, c := range []*exec.Cmd{a, b} {
		if err := c.Wait(); err != nil {
			t.Errorf("%v: %s", err, c.Stdout)
		}
	}
}

// A process is killed while it writes; whoever comes next finds whole entries and
// a free lock.
func TestKilledProcess(t *testing.T) {
	kills := 6
	if testing.Short() {
		kills = 2
	}
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(5, 5))
	for i := range kills {
		c := child(t, dir, 100+i, -1)
		for start := time.Now(); ; time.Sleep(time.Millisecond) { // until it writes
			l, _ := filepath.Glob(filepath.Join(dir, "*"))
			if len(l) > 3 || time.Since(start) > 5*time.Second {
				break
			}
		}
		time.Sleep(time.Duration(rng.IntN(20000)) * time.Microsecond)
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		c.Wait()
		churn(t, dir, uint64(i), 30)
		if l, _ := filepath.Glob(filepath.Join(dir, "*.tmp")); len(l) != 0 {
			t.Errorf("%v is left after another process wrote", l)
		}
	}
}

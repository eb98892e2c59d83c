package rclc

// Cap is the largest number of positions that a sender of t positions, inherited of
// them inherited and reserve set aside for reasoning, may send: min(budget,
// t+reserve) with a budget, else inherited + ⌈(t+reserve-inherited)/ratio⌉. 0 stands
// for what is not given; with neither the ratio is 4.
func Cap(t, inherited, reserve, ratio, budget int) (int, error) {
	switch {
	case ratio != 0 && budget != 0:
		return 0, fail(ErrOption, "ratio_and_budget", "a ratio of %d and a budget of %d: give one of them", ratio, budget)
	case ratio < 0:
		return 0, fail(ErrOption, "bad_ratio", "a ratio of %d: want at least 1", ratio)
	case budget < 0:
		return 0, fail(ErrOption, "bad_budget", "a budget of %d: want at least 1", budget)
	case budget > 0:
		return min(budget, t+reserve), nil
	case ratio == 0:
		ratio = 4
	}
	n := t + reserve - inherited
	c := n / ratio
	if n%ratio > 0 {
		c++
	}
	return inherited + c, nil
}

// Fit returns how many positions each sender gets so that all fit the tightest of
// available, the room of each receiver that has a limit: their caps if those fit,
// else their floors and equal shares of the rest, none beyond its cap, in rounds.
func Fit(caps, floors []int, available []int) ([]int, error) {
	if len(caps) != len(floors) {
		return nil, fail(ErrOption, "senders", "%d caps and %d floors: want one of each per sender", len(caps), len(floors))
	}
	for i := range caps {
		if caps[i] < floors[i] {
			return nil, fail(ErrBudget, "budget_below_floor", "sender %d may send %d positions and must send %d: lower the ratio, raise the budget or reserve fewer rows", i, caps[i], floors[i])
		}
	}
	counts := append([]int(nil), caps...)
	if len(available) == 0 {
		return counts, nil
	}
	room := available[0]
	for _, a := range available[1:] {
		room = min(room, a)
	}
	if total(caps) <= room {
		return counts, nil
	}
	if n := total(floors); n > room {
		return nil, &FitError{Available: room, Needed: n, Senders: len(caps)}
	}
	copy(counts, floors)
	left := room - total(floors)
	for left > 0 {
		active := 0
		for i := range counts {
			if counts[i] < caps[i] {
				active++
			}
		}
		share := max(1, left/max(active, 1))
		for i := range counts {
			n := min(share, caps[i]-counts[i], left)
			counts[i], left = counts[i]+n, left-n
		}
	}
	return counts, nil
}

func total(l []int) int {
	n := 0
	for _, x := range l {
		n += x
	}
	return n
}

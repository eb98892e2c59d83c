package parity_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/nn"
	"samebit/parity"
)

// loose is a processor that does not promise its bits.
type loose struct{ backend.Device }

func (l loose) Info() backend.Info {
	i := l.Device.Info()
	i.Inexact = "sums in any order"
	return i
}

// A device that is not exact is refused, even where its bits happen to be right.
func TestInexactDevice(t *testing.T) {
	cfg := parity.Config{Prompt: 3, Generate: 1, Impls: []string{"generic"}, Devices: []parity.Target{{Name: "loose", Open: func() (backend.Device, error) {
		d, err := cpu.New(cpu.Config{Threads: 1})
		return loose{d}, err
	}}}}
	nothing := func(context.Context, backend.Device) (*nn.Decoder, error) { return nil, errors.New("too early") }
	_, err := parity.Run(t.Context(), nothing, cfg)
	if err == nil || !strings.Contains(err.Error(), "loose is not bit-exact (sums in any order)") {
		t.Errorf("parity with a device that is not exact: %v", err)
	}
}

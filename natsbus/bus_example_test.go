package natsbus_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"samebit/natsbus"
	"samebit/rclc"
)

// A transfer whose receiver takes its deliveries from the bus: here in the same
// process, elsewhere with a URL in the place of Dir.
func ExampleBus() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	dir, err := os.MkdirTemp("", "natsbus")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	bus, err := natsbus.OpenBus(ctx, natsbus.Config{Dir: dir}, natsbus.BusConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer bus.Close()

	// The sender: a bus address is a receiver as any other.
	model := tiny()
	defer model.close()
	sender, err := rclc.FromTokens(ctx, model.Model, []int32{17, 4, 99, 250, 8, 31, 77, 5})
	if err != nil {
		log.Fatal(err)
	}
	defer sender.Release()
	request := rclc.Request{IDs: []int32{8, 31}}
	err = rclc.Transfer(ctx, []rclc.Source{sender}, []rclc.Receiver{bus.To("ann")}, []rclc.Request{request}, rclc.Config{Ratio: 2})
	if err != nil {
		log.Fatal(err)
	}

	// The receiver; natsbus.Into(agent) would queue deliveries in an agent.
	ann, err := bus.Receiver(ctx, natsbus.ReceiverConfig{Name: "ann", Model: model.Model})
	if err != nil {
		log.Fatal(err)
	}
	defer ann.Close()
	err = ann.Run(ctx, func(_ context.Context, id string, d rclc.Delivery) error {
		fmt.Printf("%d message, %d rows for %v\n", len(d.Messages), d.Positions(), d.Request.IDs)
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		log.Fatal(err)
	}
	// Output: 1 message, 4 rows for [8 31]
}

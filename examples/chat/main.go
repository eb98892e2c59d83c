// Command chat holds a short conversation with a local model, each line of
// standard input one turn:
//
//	go run ./examples/chat MODEL
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"

	"samebit"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatalf("usage: %s MODEL", os.Args[0])
	}
	m, err := samebit.Open(os.Args[1], samebit.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	chat, err := m.NewChat(samebit.ChatConfig{System: "Answer in one short sentence."})
	if err != nil {
		log.Fatal(err)
	}
	defer chat.Close()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		for tok, err := range chat.Send(context.Background(), in.Text(), samebit.Gen{MaxTokens: 64}) {
			if err != nil {
				log.Fatal(err)
			}
			fmt.Print(tok.Text)
		}
		fmt.Println()
	}
}

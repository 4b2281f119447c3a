// Reads partition 0 of a topic with kafka-go and prints each record's offset, up to LAST.
//
//	reader HOST:PORT TOPIC LAST BYTES        BYTES: the most of a fetch
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go"
)

func main() {
	last, err := strconv.ParseInt(os.Args[3], 10, 64)
	check(err)
	most, err := strconv.Atoi(os.Args[4])
	check(err)
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers:  []string{os.Args[1]},
		Topic:    os.Args[2],
		MinBytes: 1,
		MaxBytes: most,
		MaxWait:  100 * time.Millisecond,
	})
	out := bufio.NewWriter(os.Stdout)
	for {
		message, err := reader.FetchMessage(context.Background())
		check(err)
		fmt.Fprintln(out, message.Offset)
		if message.Offset == last {
			check(out.Flush())
			return
		}
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

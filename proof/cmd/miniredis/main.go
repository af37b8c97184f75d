// Command miniredis serves an in-memory Redis on a free loopback port, for tests on
// machines without redis-server. It prints its address, and runs until it is
// interrupted.
package main

import (
	"context"
	"fmt"
	"log"
	"os/signal"
	"syscall"

	"github.com/alicebob/miniredis/v2"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true) // keys expire by the clock, as on Redis
	if err := server.Start(); err != nil {
		log.Fatal("miniredis: ", err)
	}
	defer server.Close()
	fmt.Println(server.Addr())
	<-ctx.Done()
}

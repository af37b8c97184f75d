// Command jobs limits work that does not come over HTTP: it sends mails, and waits
// where the rules refuse.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/routelimit/limit"
)

func main() {
	mails, err := limit.New(nil, nil).Policy(limit.Named("mails",
		limit.PerUser(time.Second, 2),
		limit.Global(time.Minute, 100),
	))
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	start := time.Now()
	for i := 1; i <= 6; i++ {
		if _, err := mails.Wait(ctx, limit.Request{Keys: map[string]string{"user": "alice"}}); err != nil {
			log.Fatal(err) // not before the deadline of ctx
		}
		fmt.Printf("mail %d to alice after %v\n", i, time.Since(start).Round(time.Second))
	}
}

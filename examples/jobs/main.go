// Command jobs limits work that does not come over HTTP: it sends mails, as
// many as the rules admit, and waits where they refuse.
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
	ctx := context.Background()
	for i := 1; i <= 6; i++ {
		for {
			d, err := mails.Take(ctx, limit.Request{Keys: limit.Keys{"user": "alice"}})
			if err != nil {
				log.Fatal(err)
			}
			if d.Allowed {
				break
			}
			fmt.Printf("refused by %v: waiting %v\n", d.Refusing(), d.RetryAfter.Round(time.Millisecond))
			time.Sleep(d.RetryAfter)
		}
		fmt.Println("mail", i, "to alice")
	}
}

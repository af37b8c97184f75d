package replay_test

import (
	"context"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/cmd/limitctl/replay"
	"github.com/routelimit/limit/cmd/limitctl/replay/accesslog"
)

const yesterday = `203.0.113.9 - - [01/May/2024:12:00:01 +0000] "POST /login HTTP/1.1" 401 12 "-" "curl/8.5.0"
203.0.113.9 - - [01/May/2024:12:00:02 +0000] "POST /login HTTP/1.1" 401 12 "-" "curl/8.5.0"
198.51.100.7 - al [01/May/2024:12:00:03 +0000] "POST /login HTTP/1.1" 200 98 "-" "Mozilla/5.0"
203.0.113.9 - - [01/May/2024:12:00:04 +0000] "POST /login HTTP/1.1" 401 12 "-" "curl/8.5.0"
`

func Example() {
	records := accesslog.NewStream(strings.NewReader(yesterday), nil)
	defer records.Close()
	result, err := replay.Run(context.Background(), records, &replay.Options{Policies: []replay.Policy{
		{Name: "login", Routes: []string{"POST /login"}, Rules: limit.MustParse("2/1m per ip")},
	}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Requests, "requests,", result.Refused, "refused")
	for _, c := range result.Refusals {
		fmt.Println(c.Address, c.Agent, "refused for", c.Longest)
	}
	for _, w := range result.Suggestions[0].Windows {
		if w.Window == time.Minute {
			fmt.Println("to refuse nobody:", w.Rule)
		}
	}
	// Output:
	// 4 requests, 1 refused
	// 203.0.113.9 curl/8.5.0 refused for 57s
	// to refuse nobody: 3/1m per ip
}

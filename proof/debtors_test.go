package proof

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/guard"
	"github.com/routelimit/limit/stores/redisstore"
)

// Processes admit a unit of each of some keys without Redis, and pay when it is back.
const (
	debtors    = 8
	debtorKeys = 1000

	debtorVar = "LIMIT_PROOF_DEBTOR" // the URL of Redis, in such a process
)

func debtorCharge(key int) []core.Charge {
	return []core.Charge{{Policy: "p", Rule: "r", Key: fmt.Sprint(key), Quota: core.Quota{Limit: 1000, Window: 3600_000_000}, Cost: 1}}
}

// owe is the main function of such a process. It prints "owes" when it does, and "paid"
// when it owes nothing, with the ms since the first payment. Between them it makes no request.
func owe(url string) {
	options, err := redis.ParseURL(url)
	if err != nil {
		panic(err)
	}
	s := guard.New(redisstore.New(redis.NewClient(options), nil), &guard.Options{Instances: debtors})
	take := func(charges []core.Charge) core.Decision {
		d, err := core.Take(context.Background(), s, charges)
		if err != nil {
			panic(err)
		}
		return d
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	for key := range debtorKeys {
		take(debtorCharge(key))
	}
	fmt.Println("owes", s.Condition().Owed, time.Now().UnixMicro())
	for s.Condition().Paid == 0 {
		time.Sleep(time.Millisecond)
	}
	answered := time.Now()
	for s.Condition().Owed > 0 {
		time.Sleep(time.Millisecond)
	}
	fmt.Println("paid", time.Since(answered).Milliseconds(), time.Now().UnixMicro())
	select {}
}

// TestDebtors has eight idle processes owe 1,000 keys each when Redis returns.
func TestDebtors(t *testing.T) {
	server := redistest.Launch(t)
	server.Kill()
	words := make(chan string, 3*debtors)
	for range debtors {
		p := exec.Command(os.Args[0])
		p.Env = append(os.Environ(), debtorVar+"=redis://"+server.Addr)
		in, err := p.StdinPipe()
		require.NoError(t, err)
		out, err := p.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, p.Start())
		t.Cleanup(func() { in.Close(); _ = p.Wait() })
		go func() {
			for lines := bufio.NewScanner(out); lines.Scan(); {
				words <- lines.Text()
			}
		}()
	}
	next := func(word string) (first, last time.Time, most int64) {
		for range debtors {
			select {
			case line := <-words:
				var said string
				var number, micros int64
				_, err := fmt.Sscan(line, &said, &number, &micros)
				require.NoError(t, err)
				require.Equal(t, word, said)
				at := time.UnixMicro(micros)
				most = max(most, number)
				if last = at; first.IsZero() {
					first = at
				}
			case <-time.After(30 * time.Second):
				require.FailNow(t, "no word of "+word)
			}
		}
		return first, last, most
	}
	next("owes")
	server.Restart()
	began := time.Now()
	first, last, slowest := next("paid")
	stats := server.Client().Info(t.Context(), "commandstats").Val()
	for line := range strings.Lines(stats) {
		if strings.HasPrefix(line, "cmdstat_eval") {
			t.Log(strings.TrimSpace(line))
		}
	}
	store := redisstore.New(server.Client(), nil)
	for key := range debtorKeys {
		charges := debtorCharge(key)
		charges[0].Cost = 0
		d, err := core.Take(t.Context(), store, charges)
		require.NoError(t, err)
		assert.EqualValues(t, 1000-debtors, d.Outcomes()[0].Remaining)
	}
	t.Logf("%d idle processes with %d keys: they have paid %v to %v after Redis is back, and at most %d ms after their first payment",
		debtors, debtorKeys, first.Sub(began), last.Sub(began), slowest)
}

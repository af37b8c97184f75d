package proof

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/redisstore"
)

// Gateways stream replies of a language model, all on one key. A reply reserves 1,000 tokens
// and uses 300 to 3,000, in chunks of 100.
const (
	gateways = 3
	streams  = 500 // of all gateways

	tokensOfStreams = 200_000 // in a window
	windowOfStreams = 2 * time.Second

	gatewayVar = "LIMIT_PROOF_GATEWAY" // the URL of Redis, in such a process
)

// stream is the main function of a gateway. It prints the time of each chunk, in Unix ms.
func stream(url string) {
	options, err := redis.ParseURL(url)
	if err != nil {
		panic(err)
	}
	limiter := limit.New(redisstore.New(redis.NewClient(options), &redisstore.Options{Timeout: 5 * time.Second}), &limit.Options{Instances: gateways, Log: slog.New(slog.DiscardHandler)})
	policy, err := limiter.Policy(limit.Named("model", limit.Rule{Name: "tokens", Key: limit.Everyone, Limit: tokensOfStreams,
		Window: windowOfStreams, Algorithm: limit.TokenBucket{Burst: tokensOfStreams / 10}, Debt: tokensOfStreams / 10}))
	if err != nil {
		panic(err)
	}
	var mu sync.Mutex
	out := bufio.NewWriter(os.Stdout)
	reply := func() {
		d, err := policy.Take(context.Background(), limit.Request{Cost: 1_000, Settle: true})
		if err != nil {
			panic(err)
		}
		if !d.Allowed {
			time.Sleep(d.RetryAfter + rand.N(20*time.Millisecond))
			return
		}
		chunks := 3 + rand.Int64N(28)
		if rand.IntN(10) == 0 {
			chunks = 1 + rand.Int64N(chunks) // the client leaves
		}
		for range chunks {
			time.Sleep(20*time.Millisecond + rand.N(30*time.Millisecond))
			mu.Lock()
			fmt.Fprintln(out, time.Now().UnixMilli())
			mu.Unlock()
		}
		if err := d.Settle(context.Background(), 100*chunks); err != nil {
			panic(err)
		}
	}
	for range streams / gateways {
		go func() {
			for {
				reply()
			}
		}()
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	for range time.Tick(10 * time.Millisecond) {
		mu.Lock()
		out.Flush()
		mu.Unlock()
	}
}

// TestStreams has three gateways on one Redis, one of which is killed again and again. What they
// have reserved too low they owe, so a window holds little more than the limit. A process that
// dies takes its reservations with it, and no more.
func TestStreams(t *testing.T) {
	lasts := 9 * time.Second
	if n, err := strconv.Atoi(os.Getenv("LIMIT_PROOF_SECONDS")); err == nil {
		lasts = max(lasts, time.Duration(n)*time.Second)
	}
	server := redistest.Launch(t)
	began := time.Now()
	var mu sync.Mutex
	used := make(map[int64]int64) // tokens of each 10 ms
	start := func() (kill func()) {
		p := exec.Command(os.Args[0])
		p.Env = append(os.Environ(), gatewayVar+"=redis://"+server.Addr)
		p.Stderr = os.Stderr
		in, err := p.StdinPipe()
		require.NoError(t, err)
		out, err := p.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, p.Start())
		read := make(chan struct{})
		go func() {
			defer close(read)
			for lines := bufio.NewScanner(out); lines.Scan(); {
				if ms, err := strconv.ParseInt(lines.Text(), 10, 64); err == nil { // the last may be cut off
					mu.Lock()
					used[(ms-began.UnixMilli())/10] += 100
					mu.Unlock()
				}
			}
		}()
		return func() { in.Close(); _ = p.Process.Kill(); <-read; _ = p.Wait() }
	}
	var kill [gateways]func()
	for i := range kill {
		kill[i] = start()
	}
	kills := 0
	for victim := 0; time.Since(began) < lasts; victim = (victim + 1) % gateways {
		time.Sleep(min(10*time.Second, lasts/3))
		kill[victim]()
		kill[victim] = start()
		kills++
	}
	for i := range kill {
		kill[i]()
	}
	from, to := int64(300), lasts.Milliseconds()/10 // from 3 s on
	window := windowOfStreams.Milliseconds() / 10
	var sum, worst, total int64
	for i := from; i < to; i++ {
		total += used[i]
		if sum += used[i]; i >= from+window {
			sum -= used[i-window]
		}
		worst = max(worst, sum)
	}
	highest := float64(worst) / tokensOfStreams
	mean := float64(total) * float64(window) / float64((to-from)*tokensOfStreams)
	t.Logf("%d gateways for %v, %d kills: worst window %.2f of the limit, mean %.2f", gateways, lasts, kills, highest, mean)
	assert.Less(t, highest, 1.25)
	assert.Greater(t, mean, 0.5) // a loaded machine streams slowly
}

package proof

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/redisstore"
	"github.com/routelimit/limit/stores/storetest"
)

// Two rules: 20 in 100 ms for each of eight keys, 100 in 70 ms for all.
const keys = 8

var (
	perKey = core.Quota{Limit: 20, Window: 100_000}
	global = core.Quota{Limit: 100, Window: 70_000}
)

// An admission is a request that was admitted.
type admission struct {
	At  int64
	Key int64
}

const workerVar = "LIMIT_PROOF_WORKER" // the URL of Redis, in a worker process

func TestMain(m *testing.M) {
	if url := os.Getenv(holderVar); url != "" {
		hold(url)
	}
	if url := os.Getenv(loserVar); url != "" {
		lose(url)
	}
	clientOf := func(url string) *redis.Client {
		options, err := redis.ParseURL(url)
		if err != nil {
			panic(err)
		}
		return redis.NewClient(options)
	}
	if url := os.Getenv(byteServerVar); url != "" {
		if err := serveBytes(clientOf(url)); err != nil {
			panic(err)
		}
		os.Exit(0)
	}
	if url := os.Getenv(workerVar); url != "" {
		client := clientOf(url)
		out := bufio.NewWriter(os.Stdout)
		for _, a := range hammer(redisstore.New(client, &redisstore.Options{Timeout: time.Minute}), 16, proofTime()) {
			binary.Write(out, binary.LittleEndian, a)
		}
		out.Flush()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// proofTime is the duration of the load: 2 s, or LIMIT_PROOF_SECONDS.
func proofTime() time.Duration {
	if n, err := strconv.Atoi(os.Getenv("LIMIT_PROOF_SECONDS")); err == nil {
		return time.Duration(n) * time.Second
	}
	return 2 * time.Second
}

// hammer takes at full speed from several goroutines for some time, and returns the
// admissions.
func hammer(store core.Store, goroutines int, length time.Duration) []admission {
	var mu sync.Mutex
	var admitted []admission
	var done sync.WaitGroup
	end := time.Now().Add(length)
	for g := range goroutines {
		done.Go(func() {
			var mine []admission
			for i := g; time.Now().Before(end); i++ {
				key := int64(i % keys)
				d, err := core.Take(context.Background(), store, storetest.Of("proof", []core.Charge{
					{Rule: "key", Key: strconv.FormatInt(key, 10), Quota: perKey, Cost: 1},
					{Rule: "global", Quota: global, Cost: 1},
				}...))
				if err != nil {
					panic(err)
				}
				if d.Allowed {
					mine = append(mine, admission{d.At, key})
				}
			}
			mu.Lock()
			defer mu.Unlock()
			admitted = append(admitted, mine...)
		})
	}
	done.Wait()
	return admitted
}

// mostIn returns the largest number of the sorted times in any half-open window.
func mostIn(times []int64, window int64) int {
	most, first := 0, 0
	for i, t := range times {
		for t-times[first] >= window {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// check compares the admissions with the two rules, in any window.
func check(t *testing.T, admitted []admission) {
	t.Helper()
	var all []int64
	of := make([][]int64, keys)
	for _, a := range admitted {
		all = append(all, a.At)
		of[a.Key] = append(of[a.Key], a.At)
	}
	slices.Sort(all)
	inAll := mostIn(all, global.Window)
	require.LessOrEqual(t, inAll, int(global.Limit))
	inKey := 0
	for _, times := range of {
		slices.Sort(times)
		inKey = max(inKey, mostIn(times, perKey.Window))
	}
	require.LessOrEqual(t, inKey, int(perKey.Limit))
	span := time.Duration(all[len(all)-1]-all[0]) * time.Microsecond
	t.Logf("%d admitted in %v; most in any window of 70 ms: %d of 100; most of a key in any window of 100 ms: %d of 20; "+
		"the rules allow about %d", len(admitted), span.Round(time.Millisecond), inAll, inKey,
		int64(span/time.Microsecond)*global.Limit/global.Window)
	// A limiter that admits far fewer than allowed would be safe and useless.
	require.Greater(t, int64(len(admitted)), int64(span/time.Microsecond)*global.Limit/global.Window/2)
}

func TestAnyWindowInMemory(t *testing.T) {
	check(t, hammer(memstore.New(nil), 64, proofTime()))
}

func TestAnyWindowOverProcesses(t *testing.T) {
	client := redistest.Client(t)
	const processes = 4
	outputs := make([][]admission, processes)
	var done sync.WaitGroup
	for p := range processes {
		done.Go(func() {
			worker := exec.Command(os.Args[0])
			worker.Env = append(os.Environ(), fmt.Sprintf("%s=redis://%s/%d", workerVar, client.Options().Addr, client.Options().DB))
			worker.Stderr = os.Stderr
			out, err := worker.StdoutPipe()
			if err == nil {
				err = worker.Start()
			}
			if err != nil {
				t.Error(err)
				return
			}
			outputs[p], err = readAdmissions(bufio.NewReader(out))
			if err == nil {
				err = worker.Wait()
			}
			if err != nil {
				t.Error(fmt.Errorf("worker %d: %w", p, err))
			}
		})
	}
	done.Wait()
	check(t, slices.Concat(outputs...))
}

func readAdmissions(r io.Reader) ([]admission, error) {
	var list []admission
	for {
		var a admission
		switch err := binary.Read(r, binary.LittleEndian, &a); err {
		case nil:
			list = append(list, a)
		case io.EOF:
			return list, nil
		default:
			return nil, err
		}
	}
}

package proof

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/redisstore"
)

// Processes hold leases of one key with eight slots, and are killed with kill -9.
const (
	holders   = 4 // processes
	hands     = 6 // of each process, which together want three times the slots
	slots     = 8
	leaseLife = time.Second
)

var inFlight = limit.Named("proof", limit.Rule{Name: "slots", Key: limit.Everyone,
	Limit: slots, Window: leaseLife, Algorithm: limit.Concurrency{}})

const (
	holderVar = "LIMIT_PROOF_HOLDER" // the URL of Redis, in a process that holds
	aloneVar  = "LIMIT_PROOF_ALONE"  // set: each process has a key of its own
)

// hold is the main function of such a process. It prints events, one a line: a word,
// the time in µs, and the id of the lease. It exits when its standard input, a pipe
// from the parent, is closed.
func hold(url string) {
	options, err := redis.ParseURL(url)
	if err != nil {
		panic(err)
	}
	of := patient // a slow machine must not look like a Redis that fails
	if os.Getenv(aloneVar) != "" {
		of.Prefix = fmt.Sprint("alone", os.Getpid())
	}
	policy := bind(limit.New(telling{redisstore.New(redis.NewClient(options), &of)}, nil), inFlight)
	for range hands {
		go func() {
			for {
				var id uint64
				began := time.Now()
				d, err := policy.Take(context.WithValue(context.Background(), idKey{}, &id), limit.Request{})
				if err != nil {
					panic(err)
				}
				if !d.Allowed {
					time.Sleep(time.Duration(5+rand.IntN(30)) * time.Millisecond)
					continue
				}
				tell("renewed", began, id)
				tell("holds", time.Now(), id)
				if rand.IntN(3) == 0 { // longer than a lease lives
					time.Sleep(leaseLife + time.Duration(rand.Int64N(int64(leaseLife))))
				} else {
					time.Sleep(time.Duration(rand.Int64N(int64(leaseLife / 3))))
				}
				tell("ends", time.Now(), id)
				d.Release()
			}
		}()
	}
	io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

func tell(word string, at time.Time, id uint64) {
	fmt.Fprintf(os.Stdout, "%s %d %d\n", word, at.UnixMicro(), id) // one write, so that lines do not mix
}

type idKey struct{}

// telling is a store that prints renewals, and passes on the id of a lease that it
// takes.
type telling struct{ core.Store }

func (s telling) Take(ctx context.Context, asks []core.Ask) error {
	*ctx.Value(idKey{}).(*uint64) = asks[0].Charges[0].ID
	return s.Store.Take(ctx, asks)
}

func (s telling) Renew(ctx context.Context, charges []core.Charge) ([]bool, error) {
	began := time.Now()
	held, err := s.Store.Renew(ctx, charges)
	for i := range held {
		if held[i] {
			tell("renewed", began, charges[i].ID)
		}
	}
	return held, err
}

// A process holds leases.
type process struct {
	number int
	*exec.Cmd
	heard chan struct{} // closed when all of its reports are known
}

func (o *observer) start(t *testing.T, number int, url string, env ...string) *process {
	p := &process{number, exec.Command(os.Args[0]), make(chan struct{})}
	p.Env = append(append(os.Environ(), holderVar+"="+url), env...)
	p.Stderr = os.Stderr
	must.Get(p.StdinPipe())(t)
	out := must.Get(p.StdoutPipe())(t)
	require.NoError(t, p.Start())
	go func() {
		defer close(p.heard)
		o.listen(t, number, out)
	}()
	return p
}

// kill kills a process. It returns when, and the leases that the process held.
func (o *observer) kill(p *process) (at time.Time, ids []uint64) {
	at = time.Now()
	p.Process.Kill() // kill -9
	<-p.heard
	p.Wait()
	ids = o.of(p.number)
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, id := range ids {
		o.held[id].until, o.held[id].killed = at.UnixMicro(), true
	}
	return at, ids
}

// inRedis returns how many of some leases have not expired, by Redis's own clock and
// the format in lua/concurrency.lua.
func inRedis(t *testing.T, client *redis.Client, ids []uint64) (n int) {
	now := client.Time(t.Context()).Val().UnixMicro()
	value, err := client.Get(t.Context(), redisKey("limit", "proof", "slots", "")).Result()
	if err == redis.Nil {
		return 0
	}
	require.NoError(t, err)
	for lease := range slices.Chunk([]byte(value[10:]), 18) {
		ends := int64(binary.BigEndian.Uint64(append([]byte{0}, lease[:7]...)))
		if ends > now && slices.Contains(ids, binary.BigEndian.Uint64(lease[7:15])) {
			n++
		}
	}
	return n
}

// until waits for a condition.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(2 * time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "%s: not within 20 s", what)
	}
}

func TestKilledHolders(t *testing.T) {
	client := redistest.Real(t)
	kills := 5
	if n, err := strconv.Atoi(os.Getenv("LIMIT_PROOF_KILLS")); err == nil {
		kills = n
	}
	url := fmt.Sprintf("redis://%s/%d", client.Options().Addr, client.Options().DB)
	o := &observer{held: make(map[uint64]*holding)}
	var running []*process
	for i := range holders {
		running = append(running, o.start(t, i, url))
	}
	var backs []time.Duration
	died := 0
	for i := range kills {
		p := running[i%holders]
		time.Sleep(time.Duration(rand.Int64N(int64(leaseLife / 2)))) // at any age of its leases
		until(t, "a lease to die with", func() bool { return len(o.of(p.number)) > 0 })
		at, ids := o.kill(p)
		running[i%holders] = o.start(t, holders+i, url)
		until(t, "the slots of a killed process", func() bool { return inRedis(t, client, ids) == 0 })
		if died += len(ids); len(ids) > 0 {
			backs = append(backs, time.Since(at))
		}
	}
	var last time.Time
	for _, p := range running {
		last, _ = o.kill(p)
	}
	policy := bind(limit.New(redisstore.New(client, nil), nil), inFlight)
	until(t, "all slots", func() bool {
		d := must.Get(policy.Take(t.Context(), limit.Request{Cost: slots}))(t)
		defer d.Release()
		return d.Allowed
	})
	backs = append(backs, time.Since(last))
	slices.Sort(backs)
	longest := backs[len(backs)-1]

	most, long, lost, renewals := o.most(), 0, 0, 0
	for _, h := range o.held {
		renewals += h.renewals - 1
		if h.until-h.from > leaseLife.Microseconds() || h.lost {
			long++
		}
		if h.lost {
			lost++
		}
	}
	t.Logf("%d processes killed with %d leases; %d leases in all, %d of them for longer than they live, %d renewals, %d lost; "+
		"most held at the same time: %d of %d; slots came back after %v (median), at most %v, of a life of %v",
		kills+holders, died, len(o.held), long, renewals, lost, most, slots,
		backs[len(backs)/2].Round(time.Millisecond), longest.Round(time.Millisecond), leaseLife)
	require.LessOrEqual(t, most, slots)
	require.Equal(t, slots, most, "far fewer would be a limiter that is safe because it refuses")
	require.LessOrEqual(t, longest, leaseLife+5*time.Second) // other tests run beside this one
	require.Positive(t, long)
	require.LessOrEqual(t, lost, long/10, "leases are renewed while they are held, unless a process stood still")
}

// TestKilledHoldersCanFail runs processes that do not share their slots.
func TestKilledHoldersCanFail(t *testing.T) {
	client := redistest.Real(t)
	url := fmt.Sprintf("redis://%s/%d", client.Options().Addr, client.Options().DB)
	o := &observer{held: make(map[uint64]*holding)}
	var running []*process
	for i := range holders {
		running = append(running, o.start(t, i, url, aloneVar+"=1"))
	}
	until(t, "far more than the slots", func() bool {
		n := 0
		for i := range holders {
			n += len(o.of(i))
		}
		return n > 2*slots // since some end before the last process is killed
	})
	for _, p := range running {
		o.kill(p)
	}
	require.Greater(t, o.most(), slots)
	require.NotEmpty(t, strings.Join(client.Keys(t.Context(), "alone*").Val(), " "))
}

package policyfile_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/ops/control"
	"github.com/routelimit/limit/ops/policyfile"
	"github.com/routelimit/limit/stores/redisstore"
	"github.com/routelimit/limit/stores/refusals"
)

// patience is how long tests wait for what comes at once on an idle machine. No test
// depends on how fast it comes.
const patience = time.Minute

// An instance follows what is pushed, and decides on Redis.
type instance struct {
	*program
	client *redis.Client
}

func instances(t testing.TB, addr, text string, observe func(*http.Request, limit.Decision, error)) (all []*instance, ctl *control.Control) {
	t.Helper()
	for range 3 {
		i := &instance{program: &program{TB: t, path: filepath.Join(t.TempDir(), "policy.yaml")}, client: redis.NewClient(&redis.Options{Addr: addr, ReadTimeout: patience, PoolTimeout: patience})}
		t.Cleanup(func() { i.client.Close() })
		write(t, i.path, text)
		ctl = control.New(i.client, &control.Options{Log: i.log.Log()})
		i.policies = must.Get(policyfile.Open(i.path, &policyfile.Options{Control: ctl, Log: i.log.Log()}))(t)
		// There is no guard, which would fall back on local limits on a slow machine.
		store := refusals.New(redisstore.New(i.client, &redisstore.Options{Timeout: patience}))
		i.limiter = limit.New(store, &limit.Options{Caller: limit.Caller[*http.Request]{User: user}, Log: i.log.Log(),
			Exempt: i.policies.Exempt, Bar: i.policies.Bar, Observe: observe})
		ctx, cancel := context.WithCancel(context.Background())
		t.Cleanup(cancel)
		require.NoError(t, i.policies.Follow(ctx, i.limiter))
		i.handler = i.policies.Handler(ok)
		all = append(all, i)
	}
	return all, ctl
}

func sum(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:6])
}

func push(t testing.TB, c *control.Control, text string, expires time.Duration) {
	t.Helper()
	f := must.Get(policyfile.Parse("policy.yaml", []byte(text)))(t)
	require.NoError(t, policyfile.Push(t.Context(), c, "policies", f, expires, "ann"))
}

// follow waits until all instances have a text in force.
func follow(t testing.TB, all []*instance, text string) time.Duration {
	t.Helper()
	begin, want := time.Now(), sum(text)
	return redistest.Await(t, patience, "the new policies on all instances", func() bool {
		return !slices.ContainsFunc(all, func(i *instance) bool { return i.policies.Status().Sum != want })
	}).Sub(begin)
}

// TestPush pushes files, withdraws them, and pushes what this program cannot read.
func TestPush(t *testing.T) {
	server := redistest.Launch(t)
	all, ctl := instances(t, server.Addr, login(5), nil)
	headers := func(want string) {
		t.Helper()
		for _, i := range all {
			_, header := i.send("POST", "/login", "192.0.2.1")
			assert.Contains(t, header, want)
		}
	}
	headers("q=5;")
	push(t, ctl, login(6), 0)
	follow(t, all, login(6))
	headers("q=6;")
	status := all[0].policies.Status()
	assert.Equal(t, []string{"pushed policies", "ann"}, []string{status.Source, status.By})
	assert.NoError(t, status.Err)

	put := func(value string) {
		require.NoError(t, ctl.Put(t.Context(), "policy", "policies", []byte(value), 0, "bob"))
		for _, i := range all {
			redistest.Await(t, patience, "the error", func() bool { return i.policies.Status().Err != nil })
		}
	}
	for _, broken := range []string{"policy.yaml\nversion: 2\nnew: x\n", "policy.yaml\n" + login(0), "", "policy.exe\nx"} {
		put(broken)
		headers("q=6;")
		push(t, ctl, login(6), 0) // so that the next one is seen to be wrong
		for _, i := range all {
			redistest.Await(t, patience, "no error", func() bool { return i.policies.Status().Err == nil })
		}
	}
	put("policy.yaml\nversion: 2\nnew: x\n")
	assert.ErrorContains(t, all[0].policies.Status().Err, "policy.yaml:1:10: the file has version 2, and this program knows 1")
	lines := all[0].log.Lines()
	assert.Contains(t, lines[len(lines)-1], "code=LIMIT-206")

	was := must.Get(policyfile.Withdraw(t.Context(), ctl, "policies", "bob"))(t)
	assert.True(t, was)
	follow(t, all, login(5))
	headers("q=5;")
	push(t, ctl, login(7), 3*time.Second)
	follow(t, all, login(7))
	follow(t, all, login(5))
	headers("q=5;")
	history := must.Get(policyfile.History(t.Context(), ctl))(t)
	assert.Equal(t, "ann", history[0].By)
	assert.Equal(t, "sha256 "+sum(login(7))+", policies 1", history[0].Note)
	assert.True(t, history[1].Deleted && history[1].By == "bob")

	// The file changes while another one is pushed. A mistake that only the limiter finds is
	// reported at once, and the file before is in force when the pushed one ends.
	i := all[0]
	push(t, ctl, login(7), 0)
	follow(t, all, login(7))
	write(t, i.path, "version: 1\npolicies:\n  login: {routes: [POST /login], rules: 4/1m per ip reserve vip 1}\n")
	redistest.Await(t, patience, "the error", func() bool { return i.policies.Status().Err != nil })
	assert.Equal(t, sum(login(7)), i.policies.Status().Sum)
	must.Get(policyfile.Withdraw(t.Context(), ctl, "policies", "bob"))(t)
	follow(t, all, login(5))
	assert.ErrorContains(t, i.policies.Status().Err, "vip")

	// So is a mistake that there is only when the pushed one ends.
	push(t, ctl, login(7), 0)
	follow(t, all, login(7))
	must.Get(i.limiter.Policy(limit.Named("fixed", limit.Global(time.Minute, 1))))(t)
	write(t, i.path, login(9)+"  fixed: {rules: 2/1m global}\n")
	redistest.Await(t, patience, "the file read", func() bool {
		return strings.Contains(strings.Join(i.log.Lines(), "\n"), "what was pushed stays in force until it ends")
	})
	must.Get(policyfile.Withdraw(t.Context(), ctl, "policies", "bob"))(t)
	follow(t, all, login(5))
	assert.ErrorContains(t, i.policies.Status().Err, "policy \"fixed\": has other rules in code")
	write(t, i.path, login(6))
	follow(t, all[:1], login(6))
	assert.NoError(t, i.policies.Status().Err)

	// An instance that starts has what is pushed at once.
	push(t, ctl, login(8), 0)
	more, _ := instances(t, server.Addr, login(5), nil)
	follow(t, more, login(8))
}

// An admission is one of a rule with a limit.
type admission struct {
	at    time.Time
	limit int64
}

// TestChangesUnderLoad changes a policy 200 times, and fewer on a slow machine, while three instances on one Redis
// decide: no request fails, no window has more than the larger of the limits that were
// in force in it, and each instance has each change. The window is so long, and the keys
// are so few, that a slow machine reaches the limits too.
func TestChangesUnderLoad(t *testing.T) {
	const changes, window, keys = 60, 2 * time.Second, 2
	server := redistest.Launch(t)
	text := func(n int) string {
		return fmt.Sprintf("version: 1\n# change %d\npolicies:\n  api: {routes: [/], rules: \"api: %d/2s per ip\"}\n", n, 10+n*7%40)
	}
	var mu sync.Mutex
	admitted := make(map[string][]admission)
	var failed, local atomic.Int64
	all, ctl := instances(t, server.Addr, text(0), func(r *http.Request, d limit.Decision, err error) {
		if err != nil {
			failed.Add(1)
			return
		}
		if d.Mode != core.ModeExact && d.Mode != core.ModeRemembered {
			local.Add(1)
		}
		if d.Allowed {
			mu.Lock()
			admitted[r.RemoteAddr] = append(admitted[r.RemoteAddr], admission{d.At, slices.Collect(d.Rules())[0].Limit})
			mu.Unlock()
		}
	})
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	var requests, refused atomic.Int64
	for _, i := range all {
		for range 2 {
			load.Go(func() {
				for ctx.Err() == nil {
					r := httptest.NewRequest("GET", "/", nil)
					r.RemoteAddr = fmt.Sprintf("192.0.2.%d:80", rand.IntN(keys))
					w := httptest.NewRecorder()
					i.handler.ServeHTTP(w, r)
					requests.Add(1)
					switch w.Code {
					case http.StatusOK:
					case http.StatusTooManyRequests:
						refused.Add(1)
					default:
						failed.Add(1)
					}
				}
			})
		}
	}
	var times []time.Duration
	for n, begin := 1, time.Now(); n <= changes && (n <= 20 || time.Since(begin) < 10*time.Second); n++ {
		push(t, ctl, text(n), 0)
		times = append(times, follow(t, all, text(n)))
	}
	redistest.Await(t, patience, "a refused request", func() bool { return refused.Load() > 0 })
	stop()
	load.Wait()

	assert.Zero(t, failed.Load())
	assert.Zero(t, local.Load())
	most, total := 0.0, 0
	for key, list := range admitted {
		slices.SortFunc(list, func(a, b admission) int { return a.at.Compare(b.at) })
		total += len(list)
		for begin, end := 0, 0; end < len(list); end++ {
			for list[end].at.Sub(list[begin].at) >= window {
				begin++
			}
			larger := slices.MaxFunc(list[begin:end+1], func(a, b admission) int { return int(a.limit - b.limit) }).limit
			most = max(most, float64(end+1-begin)/float64(larger))
			require.LessOrEqual(t, end+1-begin, int(larger), key)
		}
	}
	slices.Sort(times)
	t.Logf("%d changes, %d requests, %d admitted, %d refused, %d failed; all instances have a change after %v (median), %v (longest); the fullest window has %.0f%% of the larger limit",
		len(times), requests.Load(), total, refused.Load(), failed.Load(), times[len(times)/2], times[len(times)-1], 100*most)
}

func TestPushedFiles(t *testing.T) {
	client := redistest.Real(t)
	ctl := control.New(client, nil)
	files := must.Get(policyfile.Pushed(t.Context(), ctl))(t)
	assert.Empty(t, files)

	f := must.Get(policyfile.Parse("api.yaml", []byte("version: 1\npolicies:\n  login: {routes: [POST /login], rules: 5/1m per ip}\n")))(t)
	require.NoError(t, policyfile.Push(t.Context(), ctl, "", f, time.Hour, "ann"))
	require.NoError(t, policyfile.Push(t.Context(), ctl, "shop", f, 0, "ann"))
	require.NoError(t, ctl.Put(t.Context(), "policy", "newer", []byte("x.yaml\nversion: 2\npolicies: none\n"), 0, "bob"))
	files, err := policyfile.Pushed(t.Context(), ctl)
	assert.ErrorContains(t, err, `the file that is pushed as "newer": x.yaml:1:`)
	require.Len(t, files, 2)
	assert.Equal(t, "login", files["policies"].Policies()[0].Name)
	assert.Equal(t, "login", files["shop"].Policies()[0].Name)

	client.Close()
	_, err = policyfile.Pushed(t.Context(), ctl)
	assert.Error(t, err)
}

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/logbook"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
)

// TestMain runs limitctl if a test has started this binary for that.
func TestMain(m *testing.M) {
	if os.Getenv("LIMITCTL_TEST_MAIN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// An output collects what a demo prints.
type output struct{ logbook.Book }

var servingOn = regexp.MustCompile(`(?m)^Serving on (http://\S+), .* until interrupted\.$`)

// base waits for the address that the demo prints.
func (o *output) base(t *testing.T) string {
	t.Helper()
	var base string
	require.Eventually(t, func() bool {
		if found := servingOn.FindStringSubmatch(o.String()); found != nil {
			base = found[1]
		}
		return base != ""
	}, 10*time.Second, 5*time.Millisecond, "no line with the address")
	return base
}

// demo runs limitctl demo on a free port until the test ends, and returns its
// address.
func demo(t *testing.T, args ...string) string {
	t.Helper()
	out := new(output)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	cmd := newCommand()
	cmd.SetArgs(append([]string{"demo", "--addr", "127.0.0.1:0"}, args...))
	cmd.SetOut(out)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended)
		assert.Contains(t, out.String(), "Stopped.\n")
	})
	return out.base(t)
}

// An answered request is a response and its body.
type answered struct {
	*http.Response
	body string
}

func send(t *testing.T, method, url string, headers ...string) answered {
	t.Helper()
	r := must.Get(http.NewRequest(method, url, nil))(t)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response := must.Get(http.DefaultClient.Do(r))(t)
	defer response.Body.Close()
	body := must.Get(io.ReadAll(response.Body))(t)
	return answered{response, string(body)}
}

func TestDemo(t *testing.T) {
	base := demo(t)
	for _, framework := range []string{"gin", "echo", "http"} {
		t.Run(framework, func(t *testing.T) {
			update, test := base+"/"+framework+"/update", base+"/"+framework+"/test"

			start := time.Now()
			var statuses []int
			var last answered
			for range 6 {
				// A forged address changes nothing.
				last = send(t, "POST", update, "X-Forwarded-For", "203.0.113.7")
				statuses = append(statuses, last.StatusCode)
			}
			if time.Since(start) > time.Second {
				t.Skip("the machine is too slow for six requests a second")
			}
			assert.Equal(t, []int{200, 200, 200, 200, 200, 429}, statuses)
			assert.Equal(t, "2", last.Header.Get("Retry-After"))
			assert.Equal(t, `"per-ip-2s";q=5;w=2, "global-1m";q=1000;w=60`, last.Header.Get("RateLimit-Policy"))
			assert.Equal(t, `"per-ip-2s";r=0;t=2, "global-1m";r=995;t=60`, last.Header.Get("RateLimit"))
			assert.Equal(t, "application/problem+json", last.Header.Get("Content-Type"))
			assert.Contains(t, last.body, `"violated-policies":["per-ip-2s"]`)

			first := send(t, "GET", test, "X-User", "alice")
			assert.Equal(t, 200, first.StatusCode)
			assert.Equal(t, "application/json", first.Header.Get("Content-Type"))
			assert.Contains(t, first.body, `"ok":true`)
			assert.Equal(t, 200, send(t, "GET", test, "X-User", "alice").StatusCode)
			third := send(t, "GET", test, "X-User", "alice")
			assert.Equal(t, 429, third.StatusCode)
			assert.Equal(t, "10", third.Header.Get("Retry-After"), "enough time to send three requests by hand")
			assert.Equal(t, 200, send(t, "GET", test, "X-User", "bob").StatusCode)
		})
	}
}

// TestDemoAlgorithms sends a burst to the route of each algorithm.
func TestDemoAlgorithms(t *testing.T) {
	base := demo(t)
	for _, a := range algorithms {
		start := time.Now()
		url := base + "/algorithms/" + a.name
		first := send(t, "GET", url)
		assert.Equal(t, 200, first.StatusCode, a.name)
		assert.Contains(t, first.body, `"ok":true`)
		name := a.rules.Rules()[0].Name
		quota := a.rules.Rules()[0].Quota()
		assert.Contains(t, first.Header.Get("RateLimit"), fmt.Sprintf(`"%s";r=%d;t=`, name, quota.Capacity()-1), a.name)
		if a.name == "queue" {
			assert.Equal(t, 200, send(t, "GET", url).StatusCode)
			assert.GreaterOrEqual(t, time.Since(start), time.Second, "the second request waits for its slot")
		}
	}
	assert.Equal(t, 404, send(t, "GET", base+"/algorithms/none").StatusCode)
}

// TestDemoDownload reads 150 kB of two downloads of one user. The first 50 kB come
// at once, and the next 100 kB take a second.
func TestDemoDownload(t *testing.T) {
	base := demo(t)
	start := time.Now()
	read := make(chan int64)
	for range 2 {
		go func() {
			var n int64
			r, err := http.NewRequest("GET", base+"/http/download", nil)
			assert.NoError(t, err)
			r.Header.Set("X-User", "alice")
			if response, err := http.DefaultClient.Do(r); assert.NoError(t, err) {
				assert.EqualValues(t, 1_000_000, response.ContentLength)
				n, err = io.CopyN(io.Discard, response.Body, 75_000)
				assert.NoError(t, err)
				response.Body.Close()
			}
			read <- n
		}()
	}
	assert.EqualValues(t, 150_000, <-read+<-read)
	assert.GreaterOrEqual(t, time.Since(start), 800*time.Millisecond)
}

func TestDemoPage(t *testing.T) {
	base := demo(t)

	text := send(t, "GET", base)
	assert.Equal(t, "text/plain; charset=utf-8", text.Header.Get("Content-Type"))
	assert.Contains(t, text.body, "\nPOST /echo/update                5/2s per ip; 1000/1m global\n")
	assert.Contains(t, text.body, "\nGET  /http/test                  2/10s per user; 50/10s global; 100/1m global\n")
	assert.Contains(t, text.body, "curl -i -X POST '"+base+"/gin/update?[1-6]'\n")

	assert.Contains(t, text.body, "GET  /algorithms/token-bucket    10/10s per ip token-bucket burst 5\n")
	assert.Contains(t, text.body, "\nGET  /http/download              100000/1s per user token-bucket burst 50000\n")
	assert.Contains(t, text.body, "GET  /algorithms/calendar        100/day per ip zone UTC\n")

	page := send(t, "GET", base, "Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
	assert.Equal(t, "text/html; charset=utf-8", page.Header.Get("Content-Type"))
	policy := page.Header.Get("Content-Security-Policy")
	nonce := regexp.MustCompile(`script-src 'nonce-([A-Z0-9]+)'`).FindStringSubmatch(policy)
	require.NotNil(t, nonce, policy)
	assert.Contains(t, policy, "default-src 'none'")
	assert.Contains(t, page.body, `<script nonce="`+nonce[1]+`">`)
	assert.Contains(t, page.body, `data-method="POST" data-path="/gin/update"`)
	assert.Contains(t, page.body, `data-rule="per-user-10s" data-most="2" data-refill="sliding" data-full-after="10000"`)
	assert.Contains(t, page.body, `data-method="GET" data-path="/algorithms/queue"`)
	assert.Contains(t, page.body, `data-rule="per-ip-10s" data-most="5"`)
	assert.Equal(t, strings.Count(page.body, `<li class="route"`), len(regexp.MustCompile(
		`</button>\s*</div>\s*<div class="answers"`).FindAllString(page.body, -1)), "answers are shown below the buttons")
	assert.NotRegexp(t, `(src|href)="(https?:)?//`, page.body, "the page loads nothing from other hosts")
	assert.NotContains(t, page.body, "ZgotmplZ", "the template refused a value")

	again := send(t, "GET", base, "Accept", "text/html")
	assert.NotEqual(t, policy, again.Header.Get("Content-Security-Policy"), "a nonce is used once")

	assert.Equal(t, 404, send(t, "GET", base+"/nothing").StatusCode)
	assert.Equal(t, 405, send(t, "POST", base).StatusCode)
}

func TestDemoPortTaken(t *testing.T) {
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer listener.Close()

	cmd := newCommand()
	cmd.SetArgs([]string{"demo", "--addr", listener.Addr().String()})
	err := cmd.ExecuteContext(t.Context())
	assert.EqualError(t, err, listener.Addr().String()+" is in use, perhaps by another demo: "+
		"use a free port with --addr 127.0.0.1:0 (make demo ADDR=127.0.0.1:0)")
}

func TestDemoWithoutRedis(t *testing.T) {
	for url, problem := range map[string]string{
		"localhost:6379":      "--redis: redis: invalid URL scheme: localhost: write --redis as redis://user:password@host:6379/0",
		"redis://127.0.0.1:1": "connection refused",
	} {
		cmd := newCommand()
		cmd.SetArgs([]string{"demo", "--addr", "127.0.0.1:0", "--redis", url})
		assert.ErrorContains(t, cmd.ExecuteContext(t.Context()), problem)
	}
}

// TestDemoPrintsOneError checks that go-redis logs nothing beside the error.
func TestDemoPrintsOneError(t *testing.T) {
	cmd := exec.Command(os.Args[0], "demo", "--addr", "127.0.0.1:0", "--redis", "redis://127.0.0.1:1")
	cmd.Env = append(os.Environ(), "LIMITCTL_TEST_MAIN=1")
	out, err := cmd.CombinedOutput()
	assert.Error(t, err)
	assert.Regexp(t, `^limitctl: Redis 127\.0\.0\.1:1 cannot be reached: .*\n$`, string(out))
}

// TestDemoOnRedis runs two demos on one Redis: they share the quotas.
func TestDemoOnRedis(t *testing.T) {
	url := "redis://" + redistest.Client(t).Options().Addr
	one, other := demo(t, "--redis", url), demo(t, "--redis", url)

	start := time.Now()
	var statuses []int
	for _, base := range []string{one, other, one, other, one, other} {
		statuses = append(statuses, send(t, "POST", base+"/gin/update").StatusCode)
	}
	if time.Since(start) > time.Second {
		t.Skip("the machine is too slow for six requests a second")
	}
	assert.Equal(t, []int{200, 200, 200, 200, 200, 429}, statuses)
}

// TestSignals checks that the program shuts down on a signal.
func TestSignals(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no signals")
	}
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		out := new(output)
		cmd := exec.Command(os.Args[0], "demo", "--addr", "127.0.0.1:0")
		cmd.Env = append(os.Environ(), "LIMITCTL_TEST_MAIN=1")
		cmd.Stdout, cmd.Stderr = out, out
		start := time.Now()
		require.NoError(t, cmd.Start())
		base := out.base(t)
		assert.Less(t, time.Since(start), 10*time.Second, "the demo starts quickly")
		assert.Equal(t, 4, strings.Count(out.String(), "curl "))

		assert.Equal(t, 200, send(t, "POST", base+"/http/update").StatusCode)
		require.NoError(t, cmd.Process.Signal(sig))
		assert.NoError(t, cmd.Wait(), "%v: %s", sig, out)
		assert.True(t, strings.HasSuffix(out.String(), "Stopped.\n"), out)
	}
}

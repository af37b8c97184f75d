package proof

import (
	"bufio"
	"bytes"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
)

// A badInput is a row of the table: an input, and the proof that a client gains
// nothing by it.
type badInput struct {
	number int
	name   string
	prove  func(*row)
}

// TestBadInputs proves what the library does with each of 66 bad inputs. No error
// admits more than the rules allow, and nothing panics but the program's own
// functions.
func TestBadInputs(t *testing.T) {
	inputs := slices.Concat(badRules, badIdentities, badKeys, badRequests, badToShow)
	require.Len(t, inputs, 66)
	passed, skipped, opens, panics := 0, 0, 0, 0
	for i, input := range inputs {
		require.Equal(t, i+1, input.number)
		var r row
		ok := t.Run(fmt.Sprintf("%02d %s", input.number, input.name), func(t *testing.T) {
			r.T = t
			defer func() {
				if problem := recover(); problem != nil {
					r.panicked(problem)
				}
			}()
			input.prove(&r)
		})
		opens += r.opens
		panics += int(r.panics.Load())
		switch {
		case r.T == nil: // -run names others
		case r.Skipped():
			skipped++
		case ok:
			passed++
		}
	}
	if skipped > 0 {
		t.Logf("SKIPPED: %d of them need a redis-server that is not installed", skipped)
	}
	t.Logf("%d of %d bad inputs passed, %d opens, %d panics", passed, len(inputs), opens, panics)
}

// A row is the test of one bad input.
type row struct {
	*testing.T
	opens  int          // admitted above what the rules allow
	panics atomic.Int64 // of the library
}

func (r *row) panicked(problem any) {
	r.panics.Add(1)
	r.Errorf("panic: %v\n%s", problem, debug.Stack())
}

// ran asserts how many requests were admitted. It counts any excess as opens.
func (r *row) ran(got, want int, about ...any) {
	r.Helper()
	r.opens += max(0, got-want)
	assert.Equal(r, want, got, about...)
}

// A site is a route POST /login, on each framework.
type site struct {
	store   core.Store // nil means one for each framework, in memory
	options *limit.Options
	rules   []limit.RuleSet
	handler http.HandlerFunc // nil does nothing
}

// behind returns a site with one policy, and quotas of its own on each framework.
func behind(rules ...limit.Rule) site { return site{rules: []limit.RuleSet{limit.Rules(rules...)}} }

// runs asserts how often the handler of a site runs on each framework.
func (r *row) runs(want int, s site, ask func(http.Handler)) {
	r.Helper()
	for name, serve := range frameworks {
		var ran atomic.Int64
		ask(serve(limit.New(s.store, s.options), "POST /login", func(w http.ResponseWriter, q *http.Request) {
			ran.Add(1)
			if s.handler != nil {
				s.handler(w, q)
			}
		}, s.rules...))
		r.ran(int(ran.Load()), want, name)
	}
}

// admits asserts how many of several requests the rules of a site admit.
func (r *row) admits(want int, s site) {
	r.Helper()
	r.runs(want, s, func(h http.Handler) { r.send(h, want+2, http.StatusTooManyRequests) })
}

// send sends requests that are admitted, or answered with a status otherwise.
func (r *row) send(h http.Handler, n, otherwise int, headers ...string) {
	r.Helper()
	for range n {
		answer := do(h, "192.0.2.1:1", "/login", headers...)
		assert.Contains(r, []int{http.StatusOK, otherwise}, answer.Code)
		r.printable(answer.Header())
	}
}

// printable asserts that headers contain no line breaks and no control characters.
func (r *row) printable(h http.Header) {
	r.Helper()
	for name, values := range h {
		for _, v := range append(values, name) {
			assert.False(r, strings.ContainsFunc(v, func(c rune) bool { return c < ' ' || c > '~' }), "%q", v)
		}
	}
}

// do passes a request to a handler directly, without the parser of a server.
func do(handler http.Handler, peer, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "http://example.com/login", nil)
	r.RemoteAddr = peer
	r.URL.Path = path
	for i := 0; i < len(headers); i += 2 { // not canonical, and not checked
		r.Header[headers[i]] = append(r.Header[headers[i]], headers[i+1])
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w
}

// listen serves a handler on a real server. The row fails if it panics.
func (r *row) listen(h http.Handler, configure ...func(*http.Server)) *httptest.Server {
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = log.New(panicLog{r}, "", 0)
	for _, set := range configure {
		set(server.Config)
	}
	server.Start()
	r.Cleanup(server.Close)
	return server
}

type panicLog struct{ row *row }

func (l panicLog) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("panic serving")) {
		l.row.panicked(string(line))
	}
	return len(line), nil
}

// observed returns options that count decisions by their mode, and errors.
func observed(modes map[string]int) *limit.Options {
	return &limit.Options{Observe: func(_ *http.Request, d limit.Decision, err error) {
		if err != nil {
			modes["undecided"]++
			return
		}
		modes[fmt.Sprint(d.Mode)]++
	}}
}

// raw sends bytes to an address. It returns the status of the answer, or 0 if the
// server only closes the connection.
func (r *row) raw(addr, text string) int {
	conn := must.Get(net.Dial("tcp", addr))(r)
	defer conn.Close()
	require.NoError(r, conn.SetDeadline(time.Now().Add(10*time.Second)))
	must.Get(conn.Write([]byte(text)))(r)
	for reader := bufio.NewReader(conn); ; {
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			return 0
		}
		response.Body.Close()
		r.printable(response.Header)
		if response.StatusCode != http.StatusContinue {
			return response.StatusCode
		}
	}
}

// left asserts how many units of the first rule of a policy are left.
func (r *row) left(limiter *limit.Limiter, rules limit.RuleSet, keys map[string]string, want int64) {
	r.Helper()
	d := must.Get(bind(limiter, rules).Peek(r.Context(), limit.Request{Keys: keys}))(r)
	assert.Equal(r, want, slices.Collect(d.Rules())[0].Remaining)
}

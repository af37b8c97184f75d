package proof

import (
	"bytes"
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/echolimit"
	"github.com/routelimit/limit/ginlimit"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/throttle"
)

// resets floods each framework with requests that are reset at once, as in
// CVE-2023-44487. Their contexts end before a decision is made. A limiter that decides
// under them, and admits what it could not decide, does not limit.
func resets(r *row, storeName string, store func() core.Store) {
	const limited, decisions = 5, 200
	for name, serve := range frameworks {
		var runs, admitted, refused, undecided atomic.Int64
		limiter := limit.New(store(), &limit.Options{
			Observe: func(_ *http.Request, d limit.Decision, err error) {
				switch {
				case err != nil:
					undecided.Add(1)
				case d.Allowed:
					admitted.Add(1)
				default:
					refused.Add(1)
				}
			}})
		handler := serve(limiter, "POST /login", func(http.ResponseWriter, *http.Request) { runs.Add(1) },
			limit.Rules(limit.PerIP(time.Hour, limited), limit.Global(time.Hour, 100_000)))
		server := httptest.NewUnstartedServer(handler)
		server.EnableHTTP2 = true
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.StartTLS()
		sent := 0
		for admitted.Load()+refused.Load() < decisions && undecided.Load() == 0 {
			sent += resetStreams(r.T, server.Listener.Addr().String(), 10*decisions)
		}
		server.Close() // waits for the handlers
		r.Logf("%s, %s: %d streams reset: %d admitted, %d refused, handler ran %d times",
			storeName, name, sent, admitted.Load(), refused.Load(), runs.Load())
		r.ran(int(runs.Load()), limited, name)
		assert.EqualValues(r, limited, admitted.Load())
		assert.Zero(r, undecided.Load())
	}
}

// throttled has a route POST /login behind rules, and slows the bodies of requests and
// responses.
var throttled = map[string]func(l *limit.Limiter, rules, bytes limit.RuleSet, h http.HandlerFunc) http.Handler{
	"http": func(l *limit.Limiter, rules, bytes limit.RuleSet, h http.HandlerFunc) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("POST /login", l.Limit(rules)(throttle.Limit(l, bytes, both)(h)))
		return mux
	},
	"gin": func(l *limit.Limiter, rules, bytes limit.RuleSet, h http.HandlerFunc) http.Handler {
		router, rl := gin.New(), ginlimit.New(l)
		router.POST("/login", rl.Limit(rules), rl.Throttle(bytes, both), gin.WrapF(h))
		return router
	},
	"echo": func(l *limit.Limiter, rules, bytes limit.RuleSet, h http.HandlerFunc) http.Handler {
		router, rl := echo.New(), echolimit.New(l)
		router.POST("/login", echo.WrapHandler(h), rl.Limit(rules), rl.Throttle(bytes, both))
		return router
	},
}

var both = &throttle.Options{Of: throttle.Both}

// resetStreams opens streams on one connection and resets each in the same write. It
// returns how many it sent until the server closed the connection.
func resetStreams(t *testing.T, addr string, streams int) (sent int) {
	conn := must.Get(tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}))(t)
	defer conn.Close()
	closed := make(chan struct{})
	go func() { // the server stops reading while its writes are not read
		_, _ = io.Copy(io.Discard, conn)
		close(closed)
	}()

	var out, block bytes.Buffer
	out.WriteString(http2.ClientPreface)
	framer, encoder := http2.NewFramer(&out, nil), hpack.NewEncoder(&block)
	require.NoError(t, framer.WriteSettings())
	for stream := uint32(1); sent < streams; stream += 2 {
		select {
		case <-closed:
			return sent
		default:
		}
		block.Reset()
		for _, field := range []hpack.HeaderField{{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "https"},
			{Name: ":authority", Value: addr}, {Name: ":path", Value: "/login"}} {
			require.NoError(t, encoder.WriteField(field))
		}
		require.NoError(t, framer.WriteHeaders(http2.HeadersFrameParam{
			StreamID: stream, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true}))
		require.NoError(t, framer.WriteRSTStream(stream, http2.ErrCodeCancel))
		if _, err := conn.Write(out.Bytes()); err != nil {
			return sent
		}
		out.Reset()
		sent++
	}
	// The server has read everything when the connection closes, since it answers the PING
	// last.
	require.NoError(t, framer.WritePing(false, [8]byte{}))
	require.NoError(t, framer.WriteGoAway(0, http2.ErrCodeNo, nil))
	_, _ = conn.Write(out.Bytes())
	_ = conn.CloseWrite()
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Error("the server did not close the connection")
	}
	return sent
}

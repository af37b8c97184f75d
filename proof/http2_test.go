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
	"github.com/routelimit/limit/echolimit"
	"github.com/routelimit/limit/ginlimit"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/redisstore"
)

// TestReset floods each framework with requests that are reset at once, as in
// CVE-2023-44487. Their contexts are done before a decision is made; a limiter
// that decides under them, and admits what it could not decide, is off.
func TestReset(t *testing.T) {
	const limited, decisions = 5, 2_000
	stores := map[string]func(*testing.T) limit.Store{
		"memory": func(*testing.T) limit.Store { return nil },
		"redis":  func(t *testing.T) limit.Store { return redisstore.New(redistest.Client(t), nil) },
	}
	for storeName, store := range stores {
		for name, serve := range frameworks {
			t.Run(storeName+"/"+name, func(t *testing.T) {
				var runs, admitted, refused, undecided atomic.Int64
				limiter := limit.New(store(t), &limit.Options{
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
				handler := serve(limiter, limit.Rules(limit.PerIP(time.Hour, limited), limit.Global(time.Hour, 100_000)),
					func() { runs.Add(1) })
				server := httptest.NewUnstartedServer(handler)
				server.EnableHTTP2 = true
				server.Config.ErrorLog = log.New(io.Discard, "", 0)
				server.StartTLS()
				sent := 0
				for admitted.Load()+refused.Load() < decisions && undecided.Load() == 0 {
					sent += resetStreams(t, server.Listener.Addr().String(), 10*decisions)
				}
				server.Close() // waits for the handlers
				t.Logf("%d streams reset: %d admitted, %d refused, handler ran %d times", sent, admitted.Load(), refused.Load(), runs.Load())
				assert.EqualValues(t, limited, runs.Load())
				assert.EqualValues(t, limited, admitted.Load())
				assert.Zero(t, undecided.Load())
			})
		}
	}
}

// frameworks has a server for each framework, with a route POST /login that
// calls run.
var frameworks = map[string]func(l *limit.Limiter, rules limit.RuleSet, run func()) http.Handler{
	"http": func(l *limit.Limiter, rules limit.RuleSet, run func()) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("POST /login", l.Handler(rules, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { run() })))
		return mux
	},
	"gin": func(l *limit.Limiter, rules limit.RuleSet, run func()) http.Handler {
		gin.SetMode(gin.ReleaseMode)
		router := gin.New()
		router.POST("/login", ginlimit.New(l).Limit(rules), func(*gin.Context) { run() })
		return router
	},
	"echo": func(l *limit.Limiter, rules limit.RuleSet, run func()) http.Handler {
		router := echo.New()
		router.POST("/login", func(echo.Context) error { run(); return nil }, echolimit.New(l).Limit(rules))
		return router
	},
}

// resetStreams opens streams on one connection and resets each in the same write, and
// returns how many it sent until the server closed the connection.
func resetStreams(t *testing.T, addr string, streams int) (sent int) {
	conn, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	require.NoError(t, err)
	defer conn.Close()
	closed := make(chan struct{})
	go func() { // the server stops reading if nobody reads what it writes
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
	// All is read before the connection closes, since a PING comes back after it.
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

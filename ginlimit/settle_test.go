package ginlimit_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/ginlimit"
	"github.com/routelimit/limit/internal/routetest"
	"github.com/routelimit/limit/rules"
)

// failed admits five requests that are answered with 401.
func failed(name string) limit.RuleSet {
	return limit.Named(name, limit.Rule{Name: name, Key: limit.Everyone, Limit: 5, Window: time.Hour,
		Settle: rules.OnStatus(http.StatusUnauthorized)})
}

var (
	errPassword  = errors.New("wrong password")
	errForbidden = errors.New("forbidden")
)

// TestSettlesByTheAnswer answers outside the limiter, as error middleware does, with
// middleware that replaces writers on either side of it. Each handler fails with a wrong
// password, lets in a right one, and forbids one: these two are never charged.
func TestSettlesByTheAnswer(t *testing.T) {
	wrong := func(c *gin.Context) {
		switch c.GetHeader("Password") {
		case "right":
			c.Status(http.StatusNoContent)
		case "forbidden":
			_ = c.Error(errForbidden)
		default:
			_ = c.Error(errPassword)
		}
	}
	failure := func(c *gin.Context) error {
		for _, err := range c.Errors {
			if errors.Is(err, errPassword) || errors.Is(err, errForbidden) {
				return err.Err
			}
		}
		return nil
	}
	statusOf := func(err error) int {
		if errors.Is(err, errForbidden) {
			return http.StatusForbidden
		}
		return http.StatusUnauthorized
	}
	after := func(answer func(c *gin.Context, status int)) gin.HandlerFunc {
		return func(c *gin.Context) {
			c.Next()
			if err := failure(c); err != nil {
				answer(c, statusOf(err))
			}
		}
	}
	toJSON := after(func(c *gin.Context, status int) { c.JSON(status, gin.H{"error": "wrong"}) })
	chain := func(h ...gin.HandlerFunc) []gin.HandlerFunc { return h }
	for name, test := range map[string]struct {
		outside []gin.HandlerFunc
		inside  []gin.HandlerFunc
		handler gin.HandlerFunc
	}{
		"JSON":            {chain(toJSON), nil, wrong},
		"inside":          {nil, chain(toJSON), wrong},
		"a status alone":  {chain(after((*gin.Context).Status)), nil, wrong},
		"the last status": {chain(after(func(c *gin.Context, status int) { c.Status(403); c.Status(401); c.Status(status) })), nil, wrong},
		"an abort":        {chain(after((*gin.Context).AbortWithStatus)), nil, wrong},
		"a kept writer": {chain(func(c *gin.Context) {
			w := c.Writer
			c.Next()
			if err := failure(c); err != nil {
				w.WriteHeader(statusOf(err))
				_, _ = w.WriteString("wrong")
			}
		}), nil, wrong},
		"gzip outside":   {chain(compressed, toJSON), nil, wrong},
		"gzip between":   {chain(toJSON, compressed), nil, wrong},
		"gzip inside":    {chain(toJSON), chain(compressed), wrong},
		"buffer outside": {chain(buffered, toJSON), nil, wrong},
		"buffer between": {chain(toJSON, buffered), nil, wrong},
		"buffer inside":  {nil, chain(buffered, toJSON), wrong},
		"logged bodies":  {chain(toJSON, func(c *gin.Context) { c.Writer = &loggedWriter{c.Writer, 0} }), nil, wrong},
		"recovery": {chain(gin.CustomRecoveryWithWriter(nil, func(c *gin.Context, err any) {
			c.AbortWithStatus(statusOf(err.(error)))
		})), nil, func(c *gin.Context) {
			if wrong(c); len(c.Errors) > 0 {
				panic(c.Errors.Last().Err)
			}
		}},
		"a body, then a panic": {chain(gin.CustomRecoveryWithWriter(nil, func(*gin.Context, any) {})), nil, func(c *gin.Context) {
			if wrong(c); len(c.Errors) > 0 {
				c.String(statusOf(c.Errors.Last()), "wrong")
				panic(errPassword)
			}
		}},
	} {
		for _, served := range []bool{false, true} {
			rl := ginlimit.New(limit.New(nil, nil))
			engine := gin.New()
			engine.Use(test.outside...)
			engine.GET("/login", append(append(chain(rl.Limit(failed("outer")), rl.Limit(failed("inner"))), test.inside...), test.handler)...)
			for password, status := range map[string]int{"right": 204, "forbidden": 403} {
				statuses := routetest.Statuses(t, engine, served, 20, "/login", "Password", password)
				assert.Equal(t, map[int]int{status: 20}, statuses, "%s, served: %v", name, served)
			}
			assert.Equal(t, map[int]int{401: 5, 429: 95}, routetest.Statuses(t, engine, served, 100, "/login"), "%s, served: %v", name, served)
		}
	}
}

// TestStrikesByTheAnswer bars a client for failures that middleware answers outside.
func TestStrikesByTheAnswer(t *testing.T) {
	engine := gin.New()
	engine.Use(func(c *gin.Context) {
		c.Next()
		if len(c.Errors) > 0 && !c.Writer.Written() {
			c.AbortWithStatus(http.StatusUnauthorized)
		}
	})
	rules := limit.Rules(limit.Rule{Key: limit.Everyone, Limit: 3, Window: time.Hour, Algorithm: limit.Ban{Bar: time.Hour},
		Settle: rules.OnStatus(http.StatusUnauthorized)})
	engine.GET("/login", ginlimit.New(limit.New(nil, nil)).Limit(rules), func(c *gin.Context) { _ = c.Error(errPassword) })
	assert.Equal(t, map[int]int{401: 3, 429: 17}, routetest.Statuses(t, engine, true, 20, "/login"))
}

// A compressedWriter is that of a gzip middleware, in short.
type compressedWriter struct {
	gin.ResponseWriter
	gzip *gzip.Writer
}

func (w *compressedWriter) Write(p []byte) (int, error) {
	if w.gzip == nil {
		w.Header().Set("Content-Encoding", "gzip")
		w.gzip = gzip.NewWriter(w.ResponseWriter)
	}
	return w.gzip.Write(p)
}

func (w *compressedWriter) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

func compressed(c *gin.Context) {
	w := &compressedWriter{ResponseWriter: c.Writer}
	c.Writer = w
	c.Next()
	c.Writer = w.ResponseWriter
	if w.gzip != nil {
		w.gzip.Close()
	}
}

// A bufferedWriter holds back the status and the body.
type bufferedWriter struct {
	gin.ResponseWriter
	body   bytes.Buffer
	status int
}

func (w *bufferedWriter) WriteHeader(status int) { w.status = status }

func (w *bufferedWriter) WriteHeaderNow() {}

func (w *bufferedWriter) Written() bool { return w.body.Len() > 0 }

func (w *bufferedWriter) Status() int { return w.status }

func (w *bufferedWriter) Write(p []byte) (int, error) { return w.body.Write(p) }

func (w *bufferedWriter) WriteString(s string) (int, error) { return w.body.WriteString(s) }

func buffered(c *gin.Context) {
	own := c.Writer
	w := &bufferedWriter{ResponseWriter: own, status: http.StatusOK}
	c.Writer = w
	c.Next()
	c.Writer = own
	if w.status != http.StatusOK || w.body.Len() > 0 {
		own.WriteHeader(w.status)
		_, _ = w.body.WriteTo(own)
	}
}

type loggedWriter struct {
	gin.ResponseWriter
	written int
}

func (w *loggedWriter) Write(p []byte) (int, error) {
	w.written += len(p)
	return w.ResponseWriter.Write(p)
}

// TestUnknownWriter checks that a writer of a middleware that leads to nothing below it
// costs the answers that come after the rules: they stay charged.
func TestUnknownWriter(t *testing.T) {
	engine := gin.New()
	engine.Use(func(c *gin.Context) { c.Writer = &opaqueWriter{own: c.Writer} })
	engine.GET("/login", ginlimit.New(limit.New(nil, nil)).Limit(failed("login")), func(c *gin.Context) {
		if c.Query("written") != "" {
			c.String(http.StatusOK, "welcome")
		}
	})
	assert.Equal(t, map[int]int{200: 20}, routetest.Statuses(t, engine, false, 20, "/login?written=yes"))
	assert.Equal(t, map[int]int{200: 5, 429: 15}, routetest.Statuses(t, engine, false, 20, "/login"))
}

// An opaqueWriter has Gin's writer where nothing finds it.
type opaqueWriter struct{ own gin.ResponseWriter }

func (w *opaqueWriter) Header() http.Header               { return w.own.Header() }
func (w *opaqueWriter) Write(p []byte) (int, error)       { return w.own.Write(p) }
func (w *opaqueWriter) WriteString(s string) (int, error) { return w.own.WriteString(s) }
func (w *opaqueWriter) WriteHeader(status int)            { w.own.WriteHeader(status) }
func (w *opaqueWriter) WriteHeaderNow()                   { w.own.WriteHeaderNow() }
func (w *opaqueWriter) Status() int                       { return w.own.Status() }
func (w *opaqueWriter) Size() int                         { return w.own.Size() }
func (w *opaqueWriter) Written() bool                     { return w.own.Written() }
func (w *opaqueWriter) Pusher() http.Pusher               { return w.own.Pusher() }
func (w *opaqueWriter) Flush()                            { w.own.Flush() }
func (w *opaqueWriter) CloseNotify() <-chan bool          { return nil }

func (w *opaqueWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) { return w.own.Hijack() }

// TestHooks answers by the functions of the Limiter, in Gin's own form.
func TestHooks(t *testing.T) {
	for name, test := range map[string]struct {
		refuse func(*gin.Context, limit.Decision)
		status int
		body   string
	}{
		"a body":       {func(c *gin.Context, d limit.Decision) { c.String(402, routetest.Refused(d)[0]) }, 402, "per-ip-1m"},
		"a body alone": {func(c *gin.Context, _ limit.Decision) { c.Writer.WriteString("later") }, 429, "later"},
		"a status":     {func(c *gin.Context, _ limit.Decision) { c.AbortWithStatus(403) }, 403, ""},
		"nothing":      {func(*gin.Context, limit.Decision) {}, 429, ""},
	} {
		var seen []*gin.Error
		rl := ginlimit.New(limit.New(nil, nil))
		rl.Refuse = test.refuse
		engine := gin.New()
		engine.Use(func(c *gin.Context) { c.Next(); seen = c.Errors })
		engine.GET("/", rl.Limit(limit.Rules(limit.PerIP(time.Minute, 1))), func(c *gin.Context) { c.Status(http.StatusNoContent) })
		require.Equal(t, http.StatusNoContent, routetest.Do(engine, "GET", "/").Code, name)
		require.Empty(t, seen, name)
		w := routetest.Do(engine, "GET", "/")
		assert.Equal(t, test.status, w.Code, name)
		assert.Equal(t, test.body, w.Body.String(), name)
		assert.Equal(t, "60", w.Header().Get("Retry-After"), name)
		require.Len(t, seen, 1, name)
		assert.ErrorAs(t, seen[0], new(*limit.RefusedError), name)
	}

	rl := ginlimit.New(limit.New(nil, &limit.Options{Log: slog.New(slog.DiscardHandler)}))
	rl.Fail = func(c *gin.Context, err error) {
		assert.ErrorIs(t, err, limit.ErrUndecided)
		c.Writer.WriteString("no limiter")
	}
	engine := gin.New()
	engine.GET("/", rl.Limit(limit.Rules(limit.Rule{Key: limit.Everyone, Limit: 1, Window: time.Minute,
		Cost: rules.CostBy("units", func(*http.Request) int64 { return -1 })})), func(*gin.Context) { t.Error("the handler runs uncounted") })
	w := routetest.Do(engine, "GET", "/")
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	assert.Equal(t, "no limiter", w.Body.String())
	assert.Equal(t, "1", w.Header().Get("Retry-After"))
}

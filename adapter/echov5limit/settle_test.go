package echov5limit_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/routetest"
	"github.com/routelimit/limit/rules"
)

// failed admits five requests that are answered with 401.
func failed(name string) limit.RuleSet {
	return limit.Named(name, limit.Rule{Name: name, Key: limit.Everyone, Limit: 5, Window: time.Hour,
		Settle: rules.OnStatus(http.StatusUnauthorized)})
}

var errPassword = errors.New("wrong password")

// unauthorized is an error handler of a program.
func (v version) unauthorized(c echoContext, err error) {
	if errors.Is(err, errPassword) && !v.started(c) {
		_ = c.JSON(http.StatusUnauthorized, map[string]string{"error": err.Error()})
		return
	}
	v.byEcho(c, err)
}

// after returns middleware that answers behind handlers that return a wrong password.
func after(answer func(echoContext) error) middleware {
	return func(next handler) handler {
		return func(c echoContext) error {
			if err := next(c); !errors.Is(err, errPassword) {
				return err
			}
			return answer(c)
		}
	}
}

// TestSettlesByTheAnswer answers outside the limiter, as error handlers do, with
// middleware that replaces writers on either side of it. Each handler fails with a wrong
// password, lets in a right one, and forbids one: these two are never charged.
func TestSettlesByTheAnswer(t *testing.T) { each(t, testSettlesByTheAnswer) }

func testSettlesByTheAnswer(t *testing.T, v version) {
	errForbidden := v.httpError(http.StatusForbidden, "forbidden")
	wrong := func(c echoContext) error {
		switch c.Request().Header.Get("Password") {
		case "right":
			return c.NoContent(http.StatusNoContent)
		case "forbidden":
			return errForbidden
		}
		return errPassword
	}
	toJSON := after(func(c echoContext) error {
		return c.JSON(http.StatusUnauthorized, map[string]string{"error": "wrong"})
	})
	toError := after(func(echoContext) error { return v.httpError(http.StatusUnauthorized, "wrong") })
	kept := func(next handler) handler {
		return func(c echoContext) error {
			w := v.writer(c)
			switch err := next(c); {
			case errors.Is(err, errPassword):
				w.WriteHeader(http.StatusUnauthorized)
			case errors.Is(err, errForbidden):
				w.WriteHeader(http.StatusForbidden)
			default:
				return err
			}
			return nil
		}
	}
	swapped := func(next handler) handler {
		return func(c echoContext) error {
			below := v.below(c)
			own := *below
			*below = struct{ http.ResponseWriter }{own}
			defer func() { *below = own }()
			return next(c)
		}
	}
	// buffered lets the handler write 200 to a buffer, and answers with another status.
	buffered := func(next handler) handler {
		return func(c echoContext) error {
			below := v.below(c)
			own := *below
			*below = buffer{own}
			if err := next(c); err != nil {
				return err
			}
			*below = own
			own.WriteHeader(map[string]int{"right": 204, "forbidden": 403, "": 401}[c.Request().Header.Get("Password")])
			return nil
		}
	}
	chain := func(m ...middleware) []middleware { return m }
	for name, test := range map[string]struct {
		outside []middleware
		inside  []middleware
		handler handler
	}{
		"error handler":           {nil, nil, wrong},
		"another error":           {chain(toError), nil, wrong},
		"another error inside":    {nil, chain(toError), wrong},
		"JSON":                    {chain(toJSON), nil, wrong},
		"JSON inside":             {nil, chain(toJSON), wrong},
		"a status alone":          {chain(after(func(c echoContext) error { return c.NoContent(http.StatusUnauthorized) })), nil, wrong},
		"gzip, error handler":     {chain(v.gzip), nil, wrong},
		"gzip inside, a handler":  {nil, chain(v.gzip), wrong},
		"gzip outside":            {chain(v.gzip, toJSON), nil, wrong},
		"gzip between":            {chain(toJSON, v.gzip), nil, wrong},
		"gzip inside":             {chain(toJSON), chain(v.gzip), wrong},
		"a buffer inside":         {nil, chain(buffered), func(c echoContext) error { return c.String(http.StatusOK, "wrong") }},
		"a kept writer":           {chain(kept), nil, wrong},
		"a kept writer, net/http": {chain(kept, v.wrapped), nil, wrong},
		"a restored writer":       {chain(swapped), nil, wrong},
		"bodies dumped":           {chain(v.dump), nil, wrong},
		"net/http":                {chain(v.wrapped), nil, wrong},
		"net/http first":          {chain(v.wrapped, toJSON), nil, wrong},
		"net/http last":           {chain(toJSON, v.wrapped), nil, wrong},
		"recovery": {chain(v.recovery), nil, func(c echoContext) error {
			if err := wrong(c); err != nil {
				panic(err)
			}
			return nil
		}},
	} {
		for _, served := range []bool{false, true} {
			e, limits := v.server(), v.limiter(limit.New(nil, nil), hooks{})
			e.onError(v.unauthorized)
			e.use(test.outside...)
			e.get("/login", test.handler, append(chain(limits(failed("outer")), limits(failed("inner"))), test.inside...)...)
			headers := []string{"Accept-Encoding", "gzip"}
			for password, status := range map[string]int{"right": 204, "forbidden": 403} {
				statuses := routetest.Statuses(t, e, served, 20, "/login", append(headers, "Password", password)...)
				assert.Equal(t, map[int]int{status: 20}, statuses, "%s, served: %v", name, served)
			}
			assert.Equal(t, map[int]int{401: 5, 429: 95}, routetest.Statuses(t, e, served, 100, "/login", headers...), "%s, served: %v", name, served)
		}
	}
}

// A buffer discards what is written, and has the header of the writer below.
type buffer struct{ http.ResponseWriter }

func (buffer) WriteHeader(int)                {}
func (buffer) Write(text []byte) (int, error) { return len(text), nil }

// TestSettlesNothingWritten checks that a handler that writes nothing has answered with
// 200 when the request ends, and that an answer that comes before counts instead.
func TestSettlesNothingWritten(t *testing.T) {
	statuses := make(chan int, 1)
	rules := limit.Rules(limit.Rule{Name: "answers", Key: limit.Everyone, Limit: 5, Window: time.Hour,
		Settle: rules.SettleBy("statuses", func(_ *http.Request, status int) int64 { statuses <- status; return 0 })})
	each(t, func(t *testing.T, v version) {
		for _, want := range []int{http.StatusOK, http.StatusUnauthorized} {
			e := v.server()
			e.use(func(next handler) handler {
				return func(c echoContext) error {
					err := next(c)
					if err == nil && want != http.StatusOK {
						return c.NoContent(want)
					}
					return err
				}
			})
			e.get("/", func(echoContext) error { return nil }, v.limit(rules))
			server := httptest.NewServer(e)
			defer server.Close()
			for range 7 {
				response := must.Get(server.Client().Get(server.URL))(t)
				response.Body.Close()
				require.Equal(t, want, response.StatusCode)
				require.Equal(t, want, <-statuses)
			}
		}
	})
}

// TestSettlesMiddlewareOfNetHTTP puts rules of net/http in the chain of Echo, whose error
// handler answers outside them.
func TestSettlesMiddlewareOfNetHTTP(t *testing.T) {
	each(t, func(t *testing.T, v version) {
		e := v.server()
		e.onError(v.unauthorized)
		e.get("/login", func(echoContext) error { return errPassword }, v.wrap(limit.New(nil, nil).Limit(failed("login"))))
		assert.Equal(t, map[int]int{401: 5, 429: 15}, routetest.Statuses(t, e, true, 20, "/login"))
	})
}

// TestSettlesAfterDeadlines answers after a middleware has ended the context of a request,
// whose handler has written nothing.
func TestSettlesAfterDeadlines(t *testing.T) {
	each(t, func(t *testing.T, v version) {
		e := v.server()
		over := make(chan struct{})
		e.use(func(next handler) handler {
			return func(c echoContext) error {
				if err := next(c); err != nil {
					return err
				}
				<-over
				return c.NoContent(http.StatusUnauthorized)
			}
		}, v.timeout)
		e.get("/login", func(c echoContext) error {
			context.AfterFunc(c.Request().Context(), func() { over <- struct{}{} })
			return nil
		}, v.limit(failed("login")))
		assert.Equal(t, map[int]int{401: 5, 429: 15}, routetest.Statuses(t, e, true, 20, "/login"))
	})
}

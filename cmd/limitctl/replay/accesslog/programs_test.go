package accesslog_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/cmd/limitctl/replay/accesslog"
)

// programs are the loggers of frameworks, as they write to a file, between what else the
// frameworks and their handlers write there.
var programs = map[string]func(out io.Writer) http.Handler{
	"gin": func(out io.Writer) http.Handler {
		fmt.Fprintln(out, "[GIN-debug] [WARNING] Running in \"debug\" mode. Switch to \"release\" mode in production.")
		fmt.Fprintln(out, "[GIN-debug] GET    /items/:id                --> main.main.func1 (3 handlers)")
		router := gin.New()
		router.Use(gin.LoggerWithWriter(out), gin.RecoveryWithWriter(out))
		router.GET("/items/:id", func(c *gin.Context) {
			if c.Query("fail") != "" {
				_ = c.Error(errors.New("the database is away")) // the logger writes it behind the line
			}
			if c.Query("panic") != "" {
				panic("at the disco")
			}
			c.String(200, "ok")
		})
		return router
	},
	"echo": func(out io.Writer) http.Handler {
		fmt.Fprintln(out, "⇨ http server started on [::]:8080")
		server := echo.New()
		server.Logger.SetOutput(out)
		//lint:ignore SA1019 as most programs have it
		server.Use(middleware.LoggerWithConfig(middleware.LoggerConfig{Output: out}))
		server.GET("/items/:id", func(c echo.Context) error {
			if c.QueryParam("fail") != "" {
				c.Logger().Error("the database is away")
			}
			return c.String(200, "ok")
		})
		return server
	},
	"slog, JSON": func(out io.Writer) http.Handler { return logged(slog.New(slog.NewJSONHandler(out, nil))) },
	"slog, text": func(out io.Writer) http.Handler { return logged(slog.New(slog.NewTextHandler(out, nil))) },
}

// logged is a handler with a log of requests as programs write one.
func logged(log *slog.Logger) http.Handler {
	log.Info("listening", "addr", ":8080")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("fail") {
			log.Error("the database is away", "attempt", 3)
		}
		_, _ = io.WriteString(w, "ok")
		log.Info("handled request", "method", r.Method, "path", r.URL.RequestURI(), "status", 200, "remote_addr", r.RemoteAddr)
	})
}

// TestPrograms reads as many records as each program has logged requests.
func TestPrograms(t *testing.T) {
	gin.SetMode(gin.TestMode)
	for name, program := range programs {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			h := program(&out)
			began := time.Now()
			const requests = 30
			for i := range requests {
				target := fmt.Sprintf("/items/%d?q=a%%20b", i)
				switch {
				case i%7 == 3:
					target += "&fail=1"
				case i%7 == 5 && name == "gin":
					target += "&panic=1"
				}
				r := httptest.NewRequest("GET", target, nil)
				r.RemoteAddr = "203.0.113.9:4711"
				h.ServeHTTP(httptest.NewRecorder(), r)
			}
			log := accesslog.NewStream(&out, nil)
			defer log.Close()
			n := 0
			for r := log.Next(); r != nil; r = log.Next() {
				assert.Equal(t, "GET", r.Method)
				assert.Equal(t, fmt.Sprintf("/items/%d", n), r.Path)
				assert.Contains(t, r.Query, "q=a%20b")
				assert.Equal(t, "203.0.113.9", r.Client)
				assert.Contains(t, []int{200, 500}, r.Status)
				if name != "gin" { // whose times have no zone
					assert.WithinDuration(t, began, time.UnixMicro(r.Time), time.Minute)
				}
				n++
			}
			require.NoError(t, log.Err())
			assert.Equal(t, requests, n)
			assert.Positive(t, log.Stats().BadLines)
		})
	}
}

package ginlimit_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/throttle"
)

// TestThrottledStream streams from a Gin engine behind throttle.Handler, which Gin asks for
// CloseNotify, and ends the stream when the client disconnects.
func TestThrottledStream(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	gone := make(chan bool, 1)
	r := gin.New()
	r.GET("/ten", func(c *gin.Context) {
		n := 0
		c.Stream(func(w io.Writer) bool {
			n++
			_, err := io.WriteString(w, "part\n")
			return err == nil && n < 10
		})
	})
	r.GET("/endless", func(c *gin.Context) {
		gone <- c.Stream(func(w io.Writer) bool {
			_, _ = io.WriteString(w, "part\n")
			return true
		})
	})
	rules := limit.Named("all", throttle.Bandwidth(limit.Everyone, time.Second, 100_000_000))
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(proto, func(t *testing.T) {
			server := httptest.NewUnstartedServer(throttle.Limit(limit.New(nil, nil), rules, &throttle.Options{Of: throttle.Both})(r))
			server.EnableHTTP2 = proto == "HTTP/2.0"
			server.StartTLS()
			defer server.Close()
			w := must.Get(server.Client().Get(server.URL + "/ten"))(t)
			assert.Equal(t, proto, w.Proto)
			text := must.Get(io.ReadAll(w.Body))(t)
			w.Body.Close()
			assert.Len(t, text, 50)

			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			request := must.Get(http.NewRequestWithContext(ctx, "GET", server.URL+"/endless", nil))(t)
			w = must.Get(server.Client().Do(request))(t)
			must.Get(io.ReadFull(w.Body, make([]byte, 5)))(t)
			cancel()
			w.Body.Close()
			assert.True(t, <-gone, "Gin noticed the disconnect")
		})
	}
}

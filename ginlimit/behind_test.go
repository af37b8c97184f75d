package ginlimit_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/must"
)

// TestStreamBehindMiddleware streams from an engine behind rules of net/http that settle:
// Gin asks the writer for methods by type assertions that panic.
func TestStreamBehindMiddleware(t *testing.T) {
	engine := gin.New()
	engine.GET("/stream", func(c *gin.Context) {
		left := 3
		c.Stream(func(w io.Writer) bool {
			_, err := io.WriteString(w, "part\n")
			left--
			return err == nil && left > 0
		})
	})
	policy := must.Get(limit.New(nil, nil).Policy(failed("all")))(t)
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		server := httptest.NewUnstartedServer(policy.Handler(engine))
		server.EnableHTTP2 = proto == "HTTP/2.0"
		server.StartTLS()
		defer server.Close()
		for range 7 {
			response := must.Get(server.Client().Get(server.URL + "/stream"))(t)
			body := must.Get(io.ReadAll(response.Body))(t)
			response.Body.Close()
			assert.Equal(t, proto, response.Proto)
			assert.Equal(t, http.StatusOK, response.StatusCode)
			assert.Equal(t, "part\npart\npart\n", string(body))
		}
	}
}

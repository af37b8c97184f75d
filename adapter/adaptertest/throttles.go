package adaptertest

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/throttle"
)

// throttleRate sends and fetches bytes over two routes of one name: together
// they are as fast as the rule says, in each direction.
func (s suite) throttleRate(t *testing.T) {
	for _, of := range []throttle.Bodies{throttle.Downloads, throttle.Uploads, throttle.Both} {
		synctest.Test(t, func(t *testing.T) {
			rule := throttle.Bandwidth(limit.ByIP, time.Second, 100_000)
			rule.Algorithm = limit.TokenBucket{Burst: 10_000}
			router := s.framework(limit.New(nil, nil))
			for _, path := range []string{"/a", "/b"} {
				router.Throttle("POST", path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					body, err := io.ReadAll(r.Body)
					assert.NoError(t, err)
					w.Write(body)
				}), limit.Named("bytes", rule), &throttle.Options{Of: of})
			}
			start := time.Now()
			var done sync.WaitGroup
			for _, path := range []string{"/a", "/a", "/b"} {
				done.Go(func() {
					body := strings.Repeat("x", 70_000)
					w := httptest.NewRecorder()
					router.ServeHTTP(w, httptest.NewRequest("POST", path, strings.NewReader(body)))
					assert.Equal(t, http.StatusOK, w.Code)
					assert.Equal(t, body, w.Body.String())
				})
			}
			done.Wait()
			seconds := 2.0
			if of == throttle.Both {
				seconds = 4.1
			}
			assert.InDelta(t, seconds, time.Since(start).Seconds(), 0.2)
		})
	}
}

// throttledBodies checks that handlers can do with slowed bodies what they do with
// others, on real servers of both protocols.
func (s suite) throttledBodies(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 20_000)
	fast := limit.Rules(throttle.Bandwidth(limit.Everyone, time.Second, 100_000_000))
	router := s.framework(limit.New(nil, nil))
	handle := func(path string, h http.HandlerFunc) {
		router.Throttle("POST", path, h, fast, &throttle.Options{Of: throttle.Both})
	}
	handle("/content", func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "file.txt", time.Time{}, bytes.NewReader(content))
	})
	handle("/parts", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body) // as HTTP/1.1 does before it answers
		assert.NoError(t, err)
		for _, part := range strings.SplitAfter(string(body), " ") {
			_, err := io.WriteString(w, part)
			assert.NoError(t, err)
			assert.NoError(t, http.NewResponseController(w).Flush())
		}
	})
	handle("/deadline", func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		assert.NoError(t, control.SetReadDeadline(time.Now().Add(time.Hour)))
		assert.NoError(t, control.SetWriteDeadline(time.Now().Add(time.Hour)))
		w.WriteHeader(http.StatusAccepted)
	})
	handle("/hijack", hijacking(t, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nmine!"))
	for _, http2 := range []bool{false, true} {
		c := clientOf(t, start(t, router, http2))
		post := func(path, body string) answer {
			a, err := c.try(t.Context(), "POST", path, strings.NewReader(body))
			require.NoError(t, err)
			assert.Equal(t, http2, a.ProtoMajor == 2)
			return a
		}
		a := post("/content", "")
		assert.EqualValues(t, len(content), a.ContentLength)
		assert.Equal(t, string(content), a.body)
		assert.Equal(t, "one two three", post("/parts", "one two three").body)
		assert.Equal(t, http.StatusAccepted, post("/deadline", "").StatusCode)
		if !http2 {
			assert.Equal(t, "mine!", post("/hijack", "").body)
		}
	}
}

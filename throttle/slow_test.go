package throttle_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/throttle"
)

// fast is a throttle that a test does not wait for: 100 MB a second, in permits
// of at most 1 MiB.
var fast = limit.Rules(throttle.Bandwidth(limit.Everyone, time.Second, 100_000_000))

// onBoth runs a test on a real server of each protocol.
func onBoth(t *testing.T, h http.Handler, test func(t *testing.T, server *httptest.Server, proto string)) {
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(proto, func(t *testing.T) {
			server := httptest.NewUnstartedServer(h)
			if server.EnableHTTP2 = proto == "HTTP/2.0"; server.EnableHTTP2 {
				server.StartTLS()
			} else {
				server.Start()
			}
			t.Cleanup(server.Close)
			test(t, server, proto)
		})
	}
}

// TestSlowFlush reads each part of an answer before the handler may write the
// next.
func TestSlowFlush(t *testing.T) {
	next := make(chan bool, 1)
	h := throttle.Limit(limit.New(nil, nil), fast, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for i := range 4 {
			<-next
			_, err := io.WriteString(w, "part "+strconv.Itoa(i)+"\n")
			assert.NoError(t, err)
			if i%2 == 0 {
				w.(http.Flusher).Flush()
			} else {
				assert.NoError(t, http.NewResponseController(w).Flush())
			}
		}
	}))
	onBoth(t, h, func(t *testing.T, server *httptest.Server, proto string) {
		next <- true
		response := must.Get(server.Client().Get(server.URL))(t)
		defer response.Body.Close()
		assert.Equal(t, proto, response.Proto)
		lines := bufio.NewScanner(response.Body)
		for i := range 4 {
			require.True(t, lines.Scan())
			assert.Equal(t, "part "+strconv.Itoa(i), lines.Text())
			if i < 3 {
				next <- true
			}
		}
	})
}

// TestSlowHijack takes over the connection of HTTP/1.1, which is then as fast as
// it is; HTTP/2 has none.
func TestSlowHijack(t *testing.T) {
	slow := limit.Rules(throttle.Bandwidth(limit.Everyone, time.Hour, 10))
	h := throttle.Limit(limit.New(nil, nil), slow, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if r.ProtoMajor == 2 {
			assert.ErrorIs(t, err, errors.ErrUnsupported)
			w.WriteHeader(http.StatusNotImplemented)
			return
		}
		if !assert.NoError(t, err) {
			return
		}
		defer conn.Close()
		rw.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + strings.Repeat("x", 5000))
		rw.Flush()
	}))
	onBoth(t, h, func(t *testing.T, server *httptest.Server, proto string) {
		response := must.Get(server.Client().Get(server.URL))(t)
		defer response.Body.Close()
		if proto == "HTTP/2.0" {
			assert.Equal(t, http.StatusNotImplemented, response.StatusCode)
			return
		}
		body := must.Get(io.ReadAll(response.Body))(t)
		assert.Len(t, body, 5000)
	})
}

// TestSlowController sets what an http.ResponseController can, and finds no way
// past the limit.
func TestSlowController(t *testing.T) {
	options := &throttle.Options{Of: throttle.Both}
	h := throttle.Limit(limit.New(nil, nil), fast, options)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		if r.ProtoMajor == 1 {
			assert.NoError(t, control.EnableFullDuplex())
		}
		assert.NoError(t, control.SetWriteDeadline(time.Now().Add(time.Hour)))
		_, unwraps := w.(interface{ Unwrap() http.ResponseWriter })
		assert.False(t, unwraps)

		first := make([]byte, 5)
		_, err := io.ReadFull(r.Body, first)
		assert.NoError(t, err)
		_, err = w.Write(first)
		assert.NoError(t, err)
		assert.NoError(t, control.Flush())
		assert.NoError(t, control.SetReadDeadline(time.Now().Add(-time.Second)))
		_, err = io.ReadAll(r.Body)
		assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
	}))
	onBoth(t, h, func(t *testing.T, server *httptest.Server, proto string) {
		body, write := io.Pipe()
		go func() {
			io.WriteString(write, "hello")
		}()
		response := must.Get(server.Client().Post(server.URL, "text/plain", body))(t)
		defer response.Body.Close()
		got := make([]byte, 5)
		must.Get(io.ReadFull(response.Body, got))(t)
		assert.Equal(t, "hello", string(got))
		io.Copy(io.Discard, response.Body)
		write.Close()
	})
}

// TestSlowDisconnect goes away in the middle of a body that would last for
// hours: the handler's Write ends at once.
func TestSlowDisconnect(t *testing.T) {
	ended := make(chan error, 1)
	proto := limit.By("proto", func(r *http.Request) string { return r.Proto })
	slow := limit.Rules(throttle.Bandwidth(proto, time.Minute, 600))
	h := throttle.Limit(limit.New(nil, nil), slow, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var err error
		for err == nil {
			_, err = w.Write(make([]byte, 100))
			w.(http.Flusher).Flush()
		}
		ended <- err
	}))
	onBoth(t, h, func(t *testing.T, server *httptest.Server, proto string) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := must.Get(http.NewRequestWithContext(ctx, "GET", server.URL, nil))(t)
		response := must.Get(server.Client().Do(r))(t)
		must.Get(io.ReadFull(response.Body, make([]byte, 100)))(t)
		cancel()
		response.Body.Close()
		select {
		case err := <-ended:
			assert.ErrorIs(t, err, context.Canceled)
		case <-time.After(10 * time.Second):
			t.Fatal("the handler still waits")
		}
	})
}

// TestSlowUploadDisconnect does the same while the handler reads.
func TestSlowUploadDisconnect(t *testing.T) {
	slow := limit.Rules(throttle.Bandwidth(limit.Everyone, time.Minute, 600))
	started, ended := make(chan bool, 1), make(chan error, 1)
	h := throttle.Limit(limit.New(nil, nil), slow, &throttle.Options{Of: throttle.Uploads})(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.ReadFull(r.Body, make([]byte, 100))
		assert.NoError(t, err)
		started <- true
		_, err = io.Copy(io.Discard, r.Body)
		ended <- err
	}))
	server := httptest.NewUnstartedServer(h)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := must.Get(http.NewRequestWithContext(ctx, "POST", server.URL, bytes.NewReader(make([]byte, 1_000_000))))(t)
	go func() {
		if response, err := server.Client().Do(r); err == nil {
			response.Body.Close()
		}
	}()
	<-started
	cancel()
	assert.Error(t, <-ended)
}

// TestSlowRate downloads from real servers, at a real rate: 200 kB in half a
// second and a little, over two connections.
func TestSlowRate(t *testing.T) {
	rule := throttle.Bandwidth(limit.Everyone, time.Second, 400_000)
	rule.Algorithm = limit.TokenBucket{Burst: 1}
	onBoth(t, throttle.Limit(limit.New(nil, nil), limit.Rules(rule), nil)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write(make([]byte, 120_000))
	})), func(t *testing.T, server *httptest.Server, _ string) {
		start := time.Now()
		read := make(chan int64)
		for range 2 {
			go func() {
				var n int64
				if response, err := server.Client().Get(server.URL); assert.NoError(t, err) {
					n, err = io.Copy(io.Discard, response.Body)
					assert.NoError(t, err)
					response.Body.Close()
				}
				read <- n
			}()
		}
		assert.EqualValues(t, 240_000, <-read+<-read)
		assert.GreaterOrEqual(t, time.Since(start), 400*time.Millisecond, "200 kB behind a first permit of 40")
	})
}

package response

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestStatus(t *testing.T) {
	for name, test := range map[string]struct {
		answer func(http.ResponseWriter)
		want   int
	}{
		"nothing":       {func(http.ResponseWriter) {}, 0},
		"a body":        {func(w http.ResponseWriter) { io.WriteString(w, "x") }, 200},
		"a file":        {func(w http.ResponseWriter) { w.(io.ReaderFrom).ReadFrom(strings.NewReader("x")) }, 200},
		"a status":      {func(w http.ResponseWriter) { w.WriteHeader(404) }, 404},
		"the first":     {func(w http.ResponseWriter) { w.WriteHeader(404); w.WriteHeader(200) }, 404},
		"informational": {func(w http.ResponseWriter) { w.WriteHeader(103); w.WriteHeader(401) }, 401},
		"switching":     {func(w http.ResponseWriter) { w.WriteHeader(101) }, 101},
	} {
		recorder := Record(httptest.NewRecorder())
		assert.Zero(t, recorder.Status(), name)
		test.answer(recorder)
		assert.Equal(t, test.want, recorder.Status(), name)
	}
}

// TestWithDefault checks what a client receives whether or not a function begins
// the response itself.
func TestWithDefault(t *testing.T) {
	for name, test := range map[string]struct {
		answer func(http.ResponseWriter)
		want   int
		body   string
	}{
		"nothing":       {func(http.ResponseWriter) {}, 429, ""},
		"a body":        {func(w http.ResponseWriter) { io.WriteString(w, "later") }, 429, "later"},
		"a status":      {func(w http.ResponseWriter) { w.WriteHeader(303) }, 303, ""},
		"both":          {func(w http.ResponseWriter) { w.WriteHeader(503); io.WriteString(w, "later") }, 503, "later"},
		"a flush":       {func(w http.ResponseWriter) { w.(http.Flusher).Flush() }, 429, ""},
		"informational": {func(w http.ResponseWriter) { w.WriteHeader(103) }, 429, ""},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			WithDefault(w, http.StatusTooManyRequests, test.answer)
		}))
		response, err := server.Client().Get(server.URL)
		require.NoError(t, err, name)
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err, name)
		response.Body.Close()
		server.Close()
		assert.Equal(t, test.want, response.StatusCode, name)
		assert.Equal(t, test.body, string(body), name)
	}
}

func TestHijack(t *testing.T) {
	status := make(chan int, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		recorder := Record(w)
		WithDefault(recorder, http.StatusTooManyRequests, func(w http.ResponseWriter) {
			conn, rw, err := w.(http.Hijacker).Hijack()
			if assert.NoError(t, err) {
				io.WriteString(rw, "HTTP/1.1 204 No Content\r\n\r\n")
				rw.Flush()
				conn.Close()
			}
		})
		status <- recorder.Status()
	}))
	defer server.Close()
	response, err := server.Client().Get(server.URL)
	require.NoError(t, err)
	response.Body.Close()
	assert.Equal(t, http.StatusNoContent, response.StatusCode, "the handler has the connection")
	assert.Equal(t, http.StatusSwitchingProtocols, <-status)
}

// bare is a writer without any of the optional methods.
type bare struct{ http.ResponseWriter }

func TestNotSupported(t *testing.T) {
	w := Passthrough{bare{httptest.NewRecorder()}}
	var (
		_ http.Flusher  = w
		_ http.Hijacker = w
		_ http.Pusher   = w
	)
	hijack := func() (net.Conn, *bufio.ReadWriter, error) { return w.Hijack() }
	_, _, err := hijack()
	assert.ErrorIs(t, err, http.ErrNotSupported)
	assert.ErrorIs(t, w.FlushError(), http.ErrNotSupported)
	assert.ErrorIs(t, w.Push("/", nil), http.ErrNotSupported)
	assert.ErrorIs(t, w.EnableFullDuplex(), http.ErrNotSupported)
	w.Flush()
}

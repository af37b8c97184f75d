package response

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit/internal/must"
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
	const text, object = "text/plain; charset=utf-8", "application/json"
	for name, test := range map[string]struct {
		answer func(http.ResponseWriter)
		want   int
		body   string
		of     string // Content-Type
	}{
		"nothing":        {func(http.ResponseWriter) {}, 429, "", ""},
		"a body":         {func(w http.ResponseWriter) { io.WriteString(w, "later") }, 429, "later", text},
		"a status":       {func(w http.ResponseWriter) { w.WriteHeader(303) }, 303, "", ""},
		"both":           {func(w http.ResponseWriter) { w.WriteHeader(503); io.WriteString(w, "later") }, 503, "later", text},
		"a flush":        {func(w http.ResponseWriter) { w.(http.Flusher).Flush() }, 429, "", ""},
		"informational":  {func(w http.ResponseWriter) { w.WriteHeader(103) }, 429, "", ""},
		"encoded":        {func(w http.ResponseWriter) { json.NewEncoder(w).Encode(map[string]int{"a": 1}) }, 429, "{\"a\":1}\n", object},
		"an object":      {func(w http.ResponseWriter) { io.WriteString(w, `{"a":1}`) }, 429, `{"a":1}`, object},
		"an array":       {func(w http.ResponseWriter) { io.WriteString(w, "[later]") }, 429, "[later]", text},
		"in parts":       {func(w http.ResponseWriter) { io.WriteString(w, "a "); io.WriteString(w, "{}") }, 429, "a {}", text},
		"empty first":    {func(w http.ResponseWriter) { io.WriteString(w, ""); w.Write(nil) }, 429, "", ""},
		"another status": {func(w http.ResponseWriter) { w.WriteHeader(503); io.WriteString(w, "{}") }, 503, "{}", text},
		"typed": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/problem+json")
			io.WriteString(w, "{}")
		}, 429, "{}", "application/problem+json"},
		"untyped": {func(w http.ResponseWriter) { w.Header()["Content-Type"] = nil; io.WriteString(w, "{}") }, 429, "{}", ""},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			WithDefault(w, http.StatusTooManyRequests, test.answer)
		}))
		response := must.Get(server.Client().Get(server.URL))(t, name)
		body := must.Get(io.ReadAll(response.Body))(t, name)
		response.Body.Close()
		server.Close()
		assert.Equal(t, test.want, response.StatusCode, name)
		assert.Equal(t, test.body, string(body), name)
		assert.Equal(t, test.of, response.Header.Get("Content-Type"), name)
	}
}

// TestFallbackIsNotTyped checks that a degraded response with JSON gets no Content-Type, as from net/http.
func TestFallbackIsNotTyped(t *testing.T) {
	w := httptest.NewRecorder()
	WithDefault(w, http.StatusOK, func(w http.ResponseWriter) { io.WriteString(w, "{}") })
	assert.Empty(t, w.Result().Header.Get("Content-Type"))
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
	response := must.Get(server.Client().Get(server.URL))(t)
	response.Body.Close()
	assert.Equal(t, http.StatusNoContent, response.StatusCode, "the handler has the connection")
	assert.Equal(t, http.StatusSwitchingProtocols, <-status)
}

// TestOffer checks that a wrapper has the optional methods of the writer below, and no
// others. The interfaces are those that an http.Handler asks for.
func TestOffer(t *testing.T) {
	type (
		W = http.ResponseWriter
		F = http.Flusher
		H = http.Hijacker
		C = closeNotifier
	)
	for i, below := range []http.ResponseWriter{
		struct{ W }{}, struct {
			W
			F
		}{}, struct {
			W
			H
		}{}, struct {
			W
			F
			H
		}{}, struct {
			W
			C
		}{}, struct {
			W
			F
			C
		}{}, struct {
			W
			H
			C
		}{}, struct {
			W
			F
			H
			C
		}{},
	} {
		w := Record(below).Writer()
		_, flushes := w.(http.Flusher)
		_, hijacks := w.(http.Hijacker)
		_, notifies := w.(closeNotifier)
		_, unwraps := w.(interface{ Unwrap() http.ResponseWriter })
		_, reads := w.(io.ReaderFrom)
		assert.Equal(t, []bool{i&1 > 0, i&2 > 0, i&4 > 0, true, true},
			[]bool{flushes, hijacks, notifies, unwraps, reads}, i)
	}

	w := Record(Record(httptest.NewRecorder()).Writer()).Writer()
	assert.NoError(t, http.NewResponseController(w).Flush(), "it is below the one below")
	assert.ErrorIs(t, http.NewResponseController(w).SetReadDeadline(time.Now()), http.ErrNotSupported)
	recorder := Record(bare{httptest.NewRecorder()})
	recorder.Flush()
	assert.Zero(t, recorder.Status(), "nothing was flushed")
}

// TestThen checks that functions are called once, with the first final status, after
// the write that begins the response, however it begins.
func TestThen(t *testing.T) {
	for name, test := range map[string]struct {
		answer func(http.ResponseWriter)
		want   int
	}{
		"a status": {func(w http.ResponseWriter) { w.WriteHeader(401); w.WriteHeader(200) }, 401},
		"a body":   {func(w http.ResponseWriter) { io.WriteString(w, "x"); io.WriteString(w, "y") }, 200},
		"a file":   {func(w http.ResponseWriter) { w.(io.ReaderFrom).ReadFrom(strings.NewReader("x")) }, 200},
		"a flush":  {func(w http.ResponseWriter) { w.(http.Flusher).Flush() }, 200},
	} {
		below := httptest.NewRecorder()
		recorder := Record(below)
		var got []int
		then := func(status int) {
			got = append(got, status)
			assert.Equal(t, test.want, below.Result().StatusCode, name)
		}
		recorder.Then(then)
		recorder.Then(then)
		assert.Empty(t, got)
		test.answer(recorder.Writer())
		assert.Equal(t, []int{test.want, test.want}, got, name)
		recorder.Then(then)
		assert.Len(t, got, 3, "it has begun")
		recorder.Answered(500)
		assert.Equal(t, test.want, recorder.Status())
	}

	recorder := Record(httptest.NewRecorder())
	assert.Panics(t, func() { recorder.WriteHeader(1000) })
	assert.Zero(t, recorder.Status(), "nothing was sent")
}

// TestThenAtOnce begins a response while functions arrive: each is called once.
func TestThenAtOnce(t *testing.T) {
	recorder := Record(bare{httptest.NewRecorder()})
	var called atomic.Int32
	var done sync.WaitGroup
	for range 50 {
		done.Go(func() { recorder.Then(func(int) { called.Add(1) }) })
		done.Go(func() { recorder.Answered(401) })
	}
	done.Wait()
	assert.EqualValues(t, 50, called.Load())
}

// bare is a writer without any of the optional methods.
type bare struct{ http.ResponseWriter }

func TestNotSupported(t *testing.T) {
	pass := Pass(bare{httptest.NewRecorder()})
	w := &pass
	var (
		_ http.Flusher  = w
		_ http.Hijacker = w
	)
	hijack := func() (net.Conn, *bufio.ReadWriter, error) { return w.Hijack() }
	_, _, err := hijack()
	assert.ErrorIs(t, err, http.ErrNotSupported)
	assert.ErrorIs(t, w.FlushError(), http.ErrNotSupported)
	assert.ErrorIs(t, w.EnableFullDuplex(), http.ErrNotSupported)
	w.Flush()
}

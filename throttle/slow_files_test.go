package throttle_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/throttle"
)

// TestSlowFiles serves a file, whole and in ranges, in parts of one permit.
func TestSlowFiles(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 200_000) // 3.2 MB
	path := filepath.Join(t.TempDir(), "file.txt")
	require.NoError(t, os.WriteFile(path, content, 0o600))

	store := &countingStore{Store: memstore.New(nil)}
	h := throttle.Limit(limit.New(store, nil), fast, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, path)
	}))
	onBoth(t, h, func(t *testing.T, server *httptest.Server, proto string) {
		for _, test := range []struct {
			bytes    string
			from, to int
		}{{"", 0, len(content)}, {"bytes=100-2999999", 100, 3_000_000}, {"bytes=-5", len(content) - 5, len(content)}} {
			r := must.Get(http.NewRequest("GET", server.URL, nil))(t)
			if test.bytes != "" {
				r.Header.Set("Range", test.bytes)
			}
			store.asked.Store(0)
			response := must.Get(server.Client().Do(r))(t)
			body, err := io.ReadAll(response.Body)
			response.Body.Close()
			require.NoError(t, err)
			assert.True(t, bytes.Equal(content[test.from:test.to], body), "%d of %d bytes", len(body), test.to-test.from)
			assert.GreaterOrEqual(t, store.asked.Load(), int64(len(body)>>20), "permits are of 1 MiB at most")
		}
		r := must.Get(http.NewRequest("HEAD", server.URL, nil))(t)
		response := must.Get(server.Client().Do(r))(t)
		response.Body.Close()
		assert.EqualValues(t, len(content), response.ContentLength)
	})
}

// TestSlowCopies copies what is no file, with and without a Content-Length that
// is right.
func TestSlowCopies(t *testing.T) {
	const size = 300_000
	content := strings.Repeat("0123456789", size/10)
	problems := make(chan error, 1)
	h := throttle.Limit(limit.New(nil, nil), fast, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if length := r.URL.Query().Get("length"); length != "" {
			w.Header().Set("Content-Length", length)
		}
		_, err := io.Copy(w, struct{ io.Reader }{strings.NewReader(content)})
		problems <- err
	}))
	onBoth(t, h, func(t *testing.T, server *httptest.Server, proto string) {
		for _, length := range []string{"", strconv.Itoa(size), strconv.Itoa(size - 1)} {
			response := must.Get(server.Client().Get(server.URL + "?length=" + length))(t)
			body, err := io.ReadAll(response.Body)
			response.Body.Close()
			require.NoError(t, err)
			problem := <-problems
			if length == strconv.Itoa(size-1) {
				assert.ErrorContains(t, problem, "declared Content-Length")
				assert.Equal(t, content[:size-1], string(body))
				continue
			}
			assert.NoError(t, problem)
			assert.Equal(t, content, string(body))
		}
	})
}

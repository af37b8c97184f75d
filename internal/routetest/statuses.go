package routetest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// Statuses sends n requests to a path, one after the other, and counts the statuses
// of their answers: with a server in front of the handler, or without one.
func Statuses(t *testing.T, h http.Handler, served bool, n int, path string, headers ...string) map[int]int {
	t.Helper()
	counts := make(map[int]int)
	if !served {
		for range n {
			counts[Do(h, "GET", path, headers...).Code]++
		}
		return counts
	}
	server := httptest.NewServer(h)
	defer server.Close()
	for range n {
		r, err := http.NewRequest("GET", server.URL+path, nil)
		require.NoError(t, err)
		for i := 0; i < len(headers); i += 2 {
			r.Header.Add(headers[i], headers[i+1])
		}
		response, err := server.Client().Do(r)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, response.Body)
		require.NoError(t, err)
		response.Body.Close()
		counts[response.StatusCode]++
	}
	return counts
}

// Package ops_test runs the programs of the guides for operators.
package ops_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/routelimit/limit/internal/must"
)

func send(h http.Handler, method, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// ok answers every request.
func ok(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("ok\n")) }

func read(t *testing.T, file string) string {
	t.Helper()
	text := must.Get(os.ReadFile(file))(t)
	return string(text)
}

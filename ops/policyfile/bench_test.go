package policyfile_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/ops/policyfile"
)

// BenchmarkHandler measures what finding the policy of a route adds to a request.
func BenchmarkHandler(b *testing.B) {
	path := filepath.Join(b.TempDir(), "policy.yaml")
	p := start(b, path, `version: 1
policies:
  login: {routes: ["POST /login"], rules: "1000000000/1s per ip leaky-bucket"}
  item: {routes: ["GET /items/{id}"], rules: "1000000000/1s per path id leaky-bucket"}
`, nil)
	code := limit.New(nil, nil).Limit(limit.MustParse("1000000000/1s per ip leaky-bucket"))(ok)
	for _, test := range []struct {
		name, method, path string
		handler            http.Handler
	}{
		{"code", "POST", "/login", code},
		{"file", "POST", "/login", p.handler},
		{"path value", "GET", "/items/7", p.handler},
		{"no policy", "GET", "/other", p.handler},
	} {
		b.Run(test.name, func(b *testing.B) {
			r := httptest.NewRequest(test.method, test.path, nil)
			w := httptest.NewRecorder()
			b.ReportAllocs()
			for b.Loop() {
				clear(w.Header())
				test.handler.ServeHTTP(w, r)
			}
		})
	}
}

// BenchmarkParse measures a file of a thousand policies.
func BenchmarkParse(b *testing.B) {
	service := must.Get(os.ReadFile("testdata/valid/service.yaml"))(b)
	var large strings.Builder
	large.WriteString("version: 1\npolicies:\n")
	for i := range 1000 {
		name := fmt.Sprintf("p%d", i)
		fmt.Fprintf(&large, "  %s: {routes: [\"GET /%s/{id}/a\"], rules: \"5/1m per ip; 20/1h per user\"}\n", name, name)
	}
	for name, text := range map[string]string{"service": string(service), "1000 policies": large.String()} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				must.Get(policyfile.Parse("a.yaml", []byte(text)))(b)
			}
		})
	}
}

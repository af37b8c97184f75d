package policyfile_test

import (
	"net/http/httptest"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/routetest"
	"github.com/routelimit/limit/operate"
	"github.com/routelimit/limit/ops/policyfile"
)

const withFile = `version: 1
policies:
  app: {rules: "all: 4/1h global"}
  login:
    routes: [POST /login]
    rules: ["2/1h per ip", "with app"]
    refuse: 503
  search: {routes: [GET /search], rules: with app; 9/1h global}
`

// TestWith shares the quota of one policy of a file with two others, and follows the file.
func TestWith(t *testing.T) { synctest.Test(t, testWith) }

func testWith(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	p := start(t, path, withFile, nil)
	put := func(text string) {
		write(t, path, text)
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
	}
	for _, test := range []struct {
		method, path string
		status       int
	}{{"POST", "/login", 200}, {"POST", "/login", 200}, {"POST", "/login", 503}, {"GET", "/search", 200}, {"GET", "/search", 200}, {"GET", "/search", 429}} {
		status, _ := p.send(test.method, test.path, "192.0.2.1")
		assert.Equal(t, test.status, status, "%s %s", test.method, test.path)
	}
	put("version: 1\npolicies:\n  app: {rules: \"all: 5/1h global\"}\n  search: {routes: [GET /search], rules: with app; 9/1h global}\n")
	status, _ := p.send("GET", "/search", "192.0.2.1")
	assert.Equal(t, 200, status)
	status, _ = p.send("GET", "/search", "192.0.2.1")
	assert.Equal(t, 429, status)
	put("version: 1\npolicies: none\n")
	status, _ = p.send("GET", "/search", "192.0.2.1")
	assert.Equal(t, 200, status)
}

func TestWithExplained(t *testing.T) {
	f := must.Get(policyfile.Parse("f.yaml", []byte(withFile)))(t)
	r := httptest.NewRequest("POST", "/login", nil)
	assert.Equal(t, `POST /login from 192.0.2.1, no user
exempt: no entry matches
barred: no entry matches
policy login, by its route POST /login (f.yaml:5:14)
  2/1h per ip (f.yaml:6:14)
    key:     ip "192.0.2.1"
    limit:   2
    refused: answered with 503
    outage:  local
  with app:
  all: 4/1h global (f.yaml:3:17)
    key:     all requests of the policy
    limit:   4
    refused: answered with 429
    outage:  local
`, f.Explain(r, &limit.Options{}))
	f = must.Get(policyfile.Parse("f.yaml", []byte("version: 1\npolicies:\n  login: {routes: [POST /login], rules: 2/1h per ip; with app}\n")))(t)
	assert.Contains(t, f.Explain(r, &limit.Options{}), `not valid with these options: f.yaml:3:3: policy "login": with app: no policy has that name`)
}

// TestWithMistakes refuses files whose policies cannot be with each other.
func TestWithMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"  a: {rules: with b}\n  b: {rules: with a}\n":                                                   "f.yaml:3:14: with b: policy \"b\" is with this one",
		"  a: {rules: 1/1s global; with a}\n":                                                            "f.yaml:3:27: with a: a set is not with itself",
		"  a: {rules: 1/1s per path id}\n  b: {routes: [/b], rules: with a}\n":                           "f.yaml:4:16: route \"/b\" has no {id}",
		"  a: {rules: \"b.x: 1/1s global; x: 1/1s global; with b\"}\n  b: {rules: \"x: 1/1s global\"}\n": `the name "b.x" is taken`,
	} {
		_, err := policyfile.Parse("f.yaml", []byte("version: 1\npolicies:\n"+text))
		assert.ErrorContains(t, err, want, text)
	}
	path := filepath.Join(t.TempDir(), "policy.yaml")
	for text, want := range map[string]string{
		"  b: {routes: [/b], rules: with nobody}\n":                         `:3:3: policy "b": with nobody: no policy has that name`,
		"  a: {rules: 1/1s per user}\n  b: {routes: [/b], rules: with a}\n": `:3:14: no user resolver`,
	} {
		write(t, path, "version: 1\npolicies:\n"+text)
		p := must.Get(policyfile.Open(path, nil))(t)
		assert.ErrorContains(t, p.Follow(t.Context(), limit.New(nil, nil)), want)
	}
}

// TestWithCode is With a policy of the program.
func TestWithCode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, "version: 1\npolicies:\n  b: {routes: [/b], rules: 5/1h global; with app}\n")
	limiter := limit.New(nil, nil)
	must.Get(limiter.Policy(limit.Named("app", limit.Rule{Name: "all", Key: limit.Everyone, Limit: 3, Window: 1e9})))(t)
	p := must.Get(policyfile.Open(path, nil))(t)
	require.NoError(t, p.Follow(t.Context(), limiter))
	w := routetest.Do(p.Handler(ok), "GET", "/b")
	assert.Contains(t, w.Header().Get("RateLimit"), `"all";r=2`)
	assert.Equal(t, []string{"app", "b"}, operate.Declared(limiter))
}

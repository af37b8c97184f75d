package policyfile_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/operate"
	"github.com/routelimit/limit/ops/access"
	"github.com/routelimit/limit/ops/control"
	"github.com/routelimit/limit/ops/policyfile"
	"github.com/routelimit/limit/rules"
	"github.com/routelimit/limit/stores/redisstore"
)

const page = "../../docs/policy-files.md"

// blocks returns the blocks of a language in the page.
func blocks(t testing.TB, language string) (texts []string) {
	t.Helper()
	data, err := os.ReadFile(page)
	require.NoError(t, err)
	for _, found := range regexp.MustCompile("(?s)\n```"+language+"\n(.*?)```").FindAllStringSubmatch(string(data), -1) {
		texts = append(texts, found[1])
	}
	return texts
}

// TestPage checks the files of the page, and what it says of the first one.
func TestPage(t *testing.T) {
	files := blocks(t, "yaml")
	require.NotEmpty(t, files)
	for _, text := range files {
		_, err := policyfile.Parse("policy.yaml", []byte(text))
		assert.NoError(t, err)
	}
	f, err := policyfile.Parse("policy.yaml", []byte(files[0]))
	require.NoError(t, err)
	r := httptest.NewRequest("POST", "/login", nil)
	r.RemoteAddr = "203.0.113.99:1"
	_, wrong := policyfile.Parse("policy.yaml", []byte(strings.Replace(files[0], "20/1h", "20/1x", 1)))
	require.Error(t, wrong)
	console := strings.Join(blocks(t, "console"), "\n")
	require.Len(t, files, 3)
	for _, want := range []string{f.Explain(r, &limit.Options{Caller: limit.Caller[*http.Request]{User: always("alice")}}), strings.ReplaceAll(wrong.Error(), "\t", "    ") + "\n"} {
		assert.Contains(t, console, want)
	}
}

// TestMistakeOfText checks the mistake that docs/rules-as-text.md shows.
func TestMistakeOfText(t *testing.T) {
	text, err := os.ReadFile("../../docs/rules-as-text.md")
	require.NoError(t, err)
	_, err = policyfile.Parse("policy.yaml", []byte("version: 1\npolicies:\n  api:\n    rules: 5/1m per ip burst 7\n"))
	require.Error(t, err)
	assert.Contains(t, string(text), "policy.yaml\n"+strings.ReplaceAll(err.Error(), "\t", "    ")+"\n```")
}

// TestProgram is the program of the page.
func TestProgram(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, blocks(t, "yaml")[0])
	mux := http.NewServeMux()
	mux.Handle("POST /login", ok)
	h, err := serve(t.Context(), path, mux)
	require.NoError(t, err)
	for address, want := range map[string]int{"203.0.113.9:1": 403, "10.0.0.1:1": 200, "192.0.2.1:1": 200} {
		r := httptest.NewRequest("POST", "/login", nil)
		r.RemoteAddr = address
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		assert.Equal(t, want, w.Code, address)
	}
}

func serve(ctx context.Context, path string, mux http.Handler) (http.Handler, error) {
	policies, err := policyfile.Open(path, nil)
	if err != nil {
		return nil, err
	}
	limiter := limit.New(nil, &limit.Options{Caller: limit.Caller[*http.Request]{User: user}, Exempt: policies.Exempt, Bar: policies.Bar})
	if err := policies.Follow(ctx, limiter); err != nil {
		return nil, err
	}
	return policies.Handler(mux), nil
}

func Example_code() {
	limiter := limit.New(nil, nil)
	update := ok

	// 5 a minute, unless a file says otherwise.
	h := limiter.Limit(limit.Named("update", limit.PerIP(time.Minute, 5)).Overridable())(update)

	changed := limit.Named("update", limit.PerIP(time.Minute, 7))
	if err := operate.Change(limiter, changed); err != nil {
		log.Fatal(err)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("POST", "/update", nil))
	fmt.Println(w.Header().Get("RateLimit-Policy"))
	// Output: "per-ip-1m";q=7;w=60
}

// TestPatterns holds what the page says of patterns.
func TestPatterns(t *testing.T) {
	items := blocks(t, "yaml")[1]
	status := func(p *program, path string) (last int) {
		for range 31 {
			w := httptest.NewRecorder()
			p.handler.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
			last = w.Code
		}
		return last
	}
	both := start(t, filepath.Join(t.TempDir(), "both.yaml"), items, nil)
	assert.Equal(t, http.StatusTooManyRequests, status(both, "/items/1"))
	assert.Equal(t, http.StatusTooManyRequests, status(both, "/items/1/"), "the same quota")
	one := start(t, filepath.Join(t.TempDir(), "one.yaml"), strings.Replace(items, `, "GET /items/{id}/{$}"`, "", 1), nil)
	assert.Equal(t, http.StatusTooManyRequests, status(one, "/items/1"))
	assert.Equal(t, http.StatusOK, status(one, "/items/1/"))
	colon := "version: 1\npolicies: {items: {routes: ['GET /items/:id'], rules: 1/1m per ip}}\n"
	_, err := policyfile.Parse("colon.yaml", []byte(colon))
	assert.ErrorContains(t, err, `write {name}, or %3A for a colon`)
	_, err = policyfile.Parse("bare.yaml", []byte("version: 1\npolicies:\n  items:\n    routes: [GET /items/{id}]\n    rules: 1/1m per ip\n"))
	assert.ErrorContains(t, err, "quotes")
}

// TestWithoutRules holds what the page says of a policy that is declared without rules.
func TestWithoutRules(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, "version: 1\npolicies: {other: {rules: 1/1m per ip}}\n")
	policies, err := policyfile.Open(path, nil)
	require.NoError(t, err)
	limiter, update := limit.New(nil, nil), ok

	h := limiter.Limit(limit.Named("update").Overridable())(update)

	status := func() int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", "/update", nil))
		return w.Code
	}
	assert.Equal(t, http.StatusServiceUnavailable, status())
	assert.ErrorContains(t, policies.Follow(t.Context(), limiter), `policy "update": has no rules`)

	write(t, path, "version: 1\npolicies: {update: {rules: 1/1m per ip}}\n")
	policies, err = policyfile.Open(path, nil)
	require.NoError(t, err)
	require.NoError(t, policies.Follow(t.Context(), limiter))
	assert.Equal(t, http.StatusOK, status())
	assert.Equal(t, http.StatusTooManyRequests, status())

	write(t, path, "version: 1\npolicies: none\n")
	policies, err = policyfile.Open(path, nil)
	require.NoError(t, err)
	require.NoError(t, policies.Follow(t.Context(), limiter))
	assert.Equal(t, http.StatusOK, status(), "all limits are lifted")
}

// TestFailedLogins is the rule of the page with a function that a file keeps.
func TestFailedLogins(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, blocks(t, "yaml")[2])
	policies, err := policyfile.Open(path, nil)
	require.NoError(t, err)
	limiter := limit.New(nil, nil)

	login := limit.Named("login", limit.Rule{
		Name: "failures", Key: limit.ByIP, Limit: 10, Window: 15 * time.Minute,
		Settle: rules.OnStatus(http.StatusUnauthorized),
	}).Overridable()

	h := limiter.Limit(login)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wrong" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	require.NoError(t, policies.Follow(t.Context(), limiter))
	status := func(times int, path string) (last int) {
		for range times {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("POST", path, nil))
			last = w.Code
		}
		return last
	}
	assert.Equal(t, http.StatusOK, status(30, "/right"), "only failures count")
	assert.Equal(t, http.StatusUnauthorized, status(20, "/wrong"), "20 by the file")
	assert.Equal(t, http.StatusTooManyRequests, status(1, "/wrong"))

	err = operate.Change(limiter, limit.Named("login", limit.MustParse("1000/1m global").Rules()...))
	assert.ErrorContains(t, err, "no rule here has its name")
}

// TestAuthentication is the program of the page with authentication around the policies.
func TestAuthentication(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, "version: 1\npolicies: {orders: {routes: [PUT /orders], rules: 1/1m per user}}\n")
	h, err := behindAuthentication(t.Context(), path, ok)
	require.NoError(t, err)
	for _, c := range []struct {
		user string
		want int
	}{{"alice", 200}, {"alice", 429}, {"bob", 200}} {
		r := httptest.NewRequest("PUT", "/orders", nil)
		r.SetBasicAuth(c.user, "")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		assert.Equal(t, c.want, w.Code, c.user)
	}
}

type userKey struct{}

func behindAuthentication(ctx context.Context, path string, router http.Handler) (http.Handler, error) {
	policies, err := policyfile.Open(path, nil)
	if err != nil {
		return nil, err
	}
	limiter := limit.New(nil, &limit.Options{Caller: limit.Caller[*http.Request]{User: func(r *http.Request) string {
		name, _ := r.Context().Value(userKey{}).(string)
		return name
	}}})
	if err := policies.Follow(ctx, limiter); err != nil {
		return nil, err
	}
	authenticate := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			name, _, _ := r.BasicAuth() // stands for a verified user
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, name)))
		})
	}

	return authenticate(policies.Handler(router)), nil
}

// TestPushed is the program of the page that follows what is pushed, beside bans.
func TestPushed(t *testing.T) {
	addr := redistest.Real(t).Options().Addr
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, strings.Replace(login(5), "policies:", "barred: [192.0.2.7]\npolicies:", 1))
	h, err := withRedis(t.Context(), path, addr, ok)
	require.NoError(t, err)
	status := func(address string) int {
		r := httptest.NewRequest("POST", "/login", nil)
		r.RemoteAddr = address + ":1"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	assert.Equal(t, http.StatusForbidden, status("192.0.2.7"), "barred by the file")

	client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: addr}))
	operators := control.New(client, &control.Options{Prefix: "shop"})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	require.NoError(t, access.NewBans(ctx, operators, nil).Ban(ctx, "192.0.2.8", time.Hour, "ann", "scans"))
	redistest.Await(t, time.Second, "the ban", func() bool { return status("192.0.2.8") == http.StatusForbidden })
	pushed, err := policyfile.Parse("none.yaml", []byte("version: 1\npolicies: none\n"))
	require.NoError(t, err)
	require.NoError(t, policyfile.Push(ctx, operators, "api", pushed, time.Hour, "ann"))
	redistest.Await(t, time.Second, "the pushed file", func() bool { return status("192.0.2.7") == http.StatusOK })
}

func withRedis(ctx context.Context, path, addr string, router http.Handler) (http.Handler, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	shared := control.New(client, &control.Options{Prefix: "shop"}) // programs with different prefixes share nothing
	policies, err := policyfile.Open(path, &policyfile.Options{Control: shared, Name: "api"})
	if err != nil {
		return nil, err
	}
	bans := access.NewBans(ctx, shared, nil)
	limiter := limit.New(redisstore.New(client, &redisstore.Options{Prefix: "shop"}), &limit.Options{
		Instances: 3, // that share this Redis
		Caller:    limit.Caller[*http.Request]{User: user},
		Exempt:    policies.Exempt,
		Bar:       func(c limit.Client) time.Duration { return max(policies.Bar(c), bans.Bar(c)) },
	})
	if err := policies.Follow(ctx, limiter); err != nil {
		return nil, err
	}
	return policies.Handler(router), nil
}

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
	"github.com/routelimit/limit/control"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/policyfile"
)

const page = "../docs/policy-files.md"

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
	for _, want := range []string{f.Explain(r, "alice"), strings.ReplaceAll(wrong.Error(), "\t", "    ") + "\n"} {
		assert.Contains(t, console, want)
	}
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
	policies, err := policyfile.Open(path, &policyfile.Options{User: user})
	if err != nil {
		return nil, err
	}
	limiter := limit.New(nil, &limit.Options{User: user, Exempt: policies.Exempt, Bar: policies.Bar})
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
	if err := limiter.Change(changed); err != nil {
		log.Fatal(err)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("POST", "/update", nil))
	fmt.Println(w.Header().Get("RateLimit-Policy"))
	// Output: "per-ip-1m";q=7;w=60
}

// TestPushed is the program of the page that follows what is pushed.
func TestPushed(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: redistest.Real(t).Options().Addr})
	t.Cleanup(func() { client.Close() })
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, login(5))
	policies, err := withRedis(path, client)
	require.NoError(t, err)
	require.NoError(t, policies.Follow(t.Context(), limit.New(nil, &limit.Options{User: user})))
	assert.Equal(t, path, policies.Status().Source)
}

func withRedis(path string, client redis.UniversalClient) (*policyfile.Policies, error) {
	return policyfile.Open(path, &policyfile.Options{User: user, Control: control.New(client, nil)})
}

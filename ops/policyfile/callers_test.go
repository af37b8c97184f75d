package policyfile_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/logbook"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/ops/policyfile"
)

// TestUnknownClass checks that the limiter, which knows the classes, refuses a file with
// another one: at the start, and in a file that changes. A policy that only code attaches
// is checked too.
func TestUnknownClass(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	const reserves, exempts = "version: 1\npolicies:\n  login: {rules: 9/1m per ip reserve vip 2, routes: [POST /login]}\n",
		"version: 1\npolicies:\n  other: {rules: 5/1h global; 9/1m per ip exempt class vip}\n"
	const want = ": write one of the classes critical, default, background, or add it to limit.Options.Classes"
	for text, place := range map[string]string{reserves: ":3:18: reserve vip", exempts: ":3:31: exempt class vip"} {
		write(t, path, text)
		p := must.Get(policyfile.Open(path, &policyfile.Options{Log: slog.New(slog.DiscardHandler)}))(t)
		class := always("")
		assert.ErrorContains(t, p.Follow(t.Context(), limit.New(nil, &limit.Options{Caller: limit.Caller[*http.Request]{Class: class}})), path+place+want)
		require.NoError(t, p.Follow(t.Context(), limit.New(nil, &limit.Options{Caller: limit.Caller[*http.Request]{Class: class}, Classes: []string{"vip", "default"}})))
	}
	synctest.Test(t, func(t *testing.T) {
		p := start(t, path, login(5), nil)
		p.limits(5)
		for text, place := range map[string]string{reserves: ":3:18: reserve vip", exempts: ":3:31: exempt class vip"} {
			write(t, path, text)
			p.limits(5)
			assert.ErrorContains(t, p.policies.Status().Err, path+place+want)
		}
		write(t, path, login(6))
		p.limits(6)
	})
}

// TestPlans checks that a caller has the limit of its plan by a file, and by the file
// that replaces it.
func TestPlans(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	file := func(pro string) string {
		return "version: 1\npolicies:\n  login: {rules: 5/1m per ip plan pro " + pro + " exempt ip 10.0.0.0/8, routes: [POST /login]}\n"
	}
	write(t, path, file("8"))
	synctest.Test(t, func(t *testing.T) {
		var log logbook.Book
		p := must.Get(policyfile.Open(path, &policyfile.Options{Log: log.Log()}))(t)
		ctx, end := context.WithCancel(t.Context())
		defer end()
		require.NoError(t, p.Follow(ctx, limit.New(nil, &limit.Options{Caller: limit.Caller[*http.Request]{Plan: user}})))
		h := p.Handler(ok)
		header := func(address, plan string) string {
			r := httptest.NewRequest("POST", "/login", nil)
			r.RemoteAddr = address + ":1"
			r.Header.Set("X-User", plan)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w.Header().Get("RateLimit-Policy")
		}
		for pro := range 2 {
			want := []string{"8", "50"}[pro]
			write(t, path, file(want))
			time.Sleep(1100 * time.Millisecond)
			synctest.Wait()
			assert.Equal(t, `"per-ip-1m";q=`+want+`;w=60`, header("192.0.2.1", "pro"))
			assert.Equal(t, `"per-ip-1m";q=5;w=60`, header("192.0.2.2", "free"))
			assert.Empty(t, header("10.0.0.1", "free"), "exempt")
		}
	})
}

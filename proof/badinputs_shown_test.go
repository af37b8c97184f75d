package proof

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"time"
	"unicode"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/grammar"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/rules"
)

// hostile are keys that attack what displays them: pages, tables, terminals.
var hostile = []string{"<img src=x onerror=alert(1)>", "</script><script>alert(1)</script>", "=cmd|' /C calc'!A0", "@SUM(1)", "\x1b[2J\x1b]0;title\x07",
	"\u202egnp.exe", "\u009b31m", "a\r\nSet-Cookie: x=y", `";r=99`, "\xff\xfe"}

// badToShow are names and keys that are displayed.
var badToShow = []badInput{
	{64, "names and keys that end a header", func(r *row) {
		for _, name := range []string{"a\r\nSet-Cookie: x", `a"b`, "a;b", "a, b", "é", "a\x00", strings.Repeat("n", 65)} {
			r.invalid("name", byIP(limit.Rule{Name: name, Limit: 5, Window: time.Second}), limit.Named(name, limit.PerIP(time.Second, 5)))
		}
		odd := "a\r\nb"
		r.invalid("key", limit.Rules(limit.Per(limit.ByHeader(odd), time.Second, 5)), limit.Rules(limit.Per(rules.NewKey(grammar.Cookie, odd), time.Second, 5)),
			limit.Rules(limit.Per(rules.NewKey(grammar.Query, odd), time.Second, 5)))
		r.invalid("limit.By", limit.Rules(limit.Per(limit.By(odd, func(*http.Request) string { return "" }), time.Second, 5)))
		// Characters of a key's name that no rule name may have become dashes.
		// Headers contain no values of keys.
		s := behind(limit.Per(rules.NewKey(grammar.Query, `é"<b>`).And(apiKey), time.Hour, 1))
		s.options = &limit.Options{Headers: limit.Draft11 | limit.XRateLimit}
		r.runs(len(hostile), s, func(h http.Handler) {
			for _, key := range hostile {
				for range 2 {
					answer := do(h, "192.0.2.1:1", "/login", "X-Api-Key", key)
					r.printable(answer.Header())
					for _, field := range []string{"RateLimit", "RateLimit-Policy"} {
						list := must.Get(httpsfv.UnmarshalList(answer.Header().Values(field)))(r)
						require.Len(r, list, 1)
						assert.Regexp(r, `^per-query-[-b]+-and-header-x-api-key-1h$`, list[0].(httpsfv.Item).Value)
					}
					for name, values := range answer.Header() {
						if strings.HasPrefix(name, "X-Ratelimit-") || name == "Retry-After" {
							assert.Regexp(r, `^[0-9]+$`, values[0])
						}
					}
				}
			}
		})
	}},
	{65, "keys that a page, a table or a terminal obeys", func(r *row) {
		// A refusal names its rules, and never a key.
		r.runs(len(hostile), behind(limit.Per(apiKey, time.Hour, 1)), func(h http.Handler) {
			for _, key := range hostile {
				r.send(h, 1, 0, "X-Api-Key", key)
				refused := do(h, "192.0.2.1:1", "/login", "X-Api-Key", key)
				assert.Equal(r, "application/problem+json", refused.Header().Get("Content-Type"))
				assert.Equal(r, "nosniff", refused.Header().Get("X-Content-Type-Options"))
				assert.JSONEq(r, `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,
					"detail":"Try again in 3600 s.","violated-policies":["per-header-x-api-key-1h"]}`, refused.Body.String())
			}
		})
		// The doctor does print keys, and clients choose some of them.
		client := redistest.Client(r)
		for _, key := range hostile {
			require.NoError(r, client.HSet(r.Context(), "limit:1:{p}:r:"+key, key, key).Err())
			require.NoError(r, client.Set(r.Context(), "limit:1:{p}:"+key, key, 0).Err())
		}
		url := fmt.Sprintf("redis://%s/%d", client.Options().Addr, client.Options().DB)
		for _, flags := range [][]string{{}, {"--json"}} {
			doctor := exec.Command(buildLimitctl(r.T), append([]string{"doctor", "--redis", url}, flags...)...)
			out, err := doctor.Output()
			var code *exec.ExitError
			require.True(r, errors.As(err, &code) && code.ExitCode() == 2, "%v: %s", err, out)
			assert.Contains(r, string(out), "limit:1:{p}:")
			for line := range strings.Lines(string(out)) {
				line = strings.TrimSuffix(line, "\n")
				assert.False(r, strings.ContainsFunc(line, func(c rune) bool { return !unicode.IsPrint(c) || c == unicode.ReplacementChar }), "%q", line)
				assert.False(r, line != "" && strings.Contains("=@+-<", line[:1]), "%q", line)
				assert.True(r, len(flags) == 0 || json.Valid([]byte(line)) && !strings.ContainsAny(line, "<>"), "%q", line)
			}
		}
	}},
	{66, "requests of other sites, and a rebound Host", func(r *row) {
		// Only the live page changes a quota other than by using it, so the page of the demo
		// need not check the origin of requests.
		base := startDemo(r.T, exec.Command(buildLimitctl(r.T), "demo", "--addr", "127.0.0.1:0"))
		ask := func(method, path, host string, headers ...string) (*http.Response, string) {
			q := must.Get(http.NewRequest(method, base+path, strings.NewReader("limit=1000000")))(r)
			q.Host = host
			for i := 0; i < len(headers); i += 2 {
				q.Header.Set(headers[i], headers[i+1])
			}
			response := must.Get(http.DefaultClient.Do(q))(r)
			defer response.Body.Close()
			body := must.Get(io.ReadAll(response.Body))(r)
			for name := range response.Header {
				assert.False(r, strings.HasPrefix(name, "Access-Control-"), "%s %s lets other sites read: %s", method, path, name)
			}
			return response, string(body)
		}
		cross := []string{"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site", "Content-Type", "text/plain"}
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
			for _, path := range []string{"/", "/reset", "/config", "/rules", "/metrics", "/debug/pprof/", "/http/test", "/gin/test", "/echo/test"} {
				for _, host := range []string{"", "evil.example"} {
					response, _ := ask(method, path, host, cross...)
					assert.Contains(r, []int{http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNoContent}, response.StatusCode, "%s %s", method, path)
				}
			}
		}
		for _, method := range []string{"GET", "POST", "PUT", "DELETE", "OPTIONS"} {
			for _, path := range []string{"/limits/", "/limits/events", "/limits/peek", "/limits/reset", "/limits/ban", "/limits/override", "/limits/alice"} {
				response, body := ask(method, path, "evil.example") // rebound: the browser takes it for that site
				assert.Equal(r, http.StatusForbidden, response.StatusCode, "%s %s", method, path)
				assert.NotContains(r, body, "per-ip")
				if method != "GET" {
					response, _ = ask(method, path, "", cross...)
					assert.Contains(r, []int{http.StatusForbidden, http.StatusMethodNotAllowed}, response.StatusCode, "%s %s", method, path)
				}
			}
		}
		response, page := ask("GET", "/", "it's.evil.example(x)", "Accept", "text/html")
		assert.Contains(r, page, "it&#39;s.evil.example(x)")
		assert.NotContains(r, page, "it's")
		for _, directive := range []string{"default-src 'none'", "form-action 'none'", "frame-ancestors 'none'"} {
			assert.Contains(r, response.Header.Get("Content-Security-Policy"), directive)
		}
		host := strings.TrimPrefix(base, "http://")
		for _, bad := range []string{"<img src=x onerror=alert(1)>", "a\x1b[2J", "=cmd|x"} {
			assert.Equal(r, http.StatusBadRequest, r.raw(host, "GET / HTTP/1.1\r\nHost: "+bad+"\r\n\r\n"), "%q", bad)
		}
		admitted := 0
		for range 2 { // alice's quota is unused
			if response, _ := ask("GET", "/http/test", "", "X-User", "alice"); response.StatusCode == http.StatusOK {
				admitted++
			}
		}
		r.ran(admitted, 2)
	}},
}

package accesslog

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/must"
)

// recorded are the logs of testdata/record.sh: what each server wrote, its errors and start-up
// lines included, and how one tells its access lines apart by eye.
var recorded = []struct {
	file, format string
	access       *regexp.Regexp
	requests     int // that the server was sent, without those that it does not log
}{
	{"nginx.log", "combined", regexp.MustCompile(`(?m)^[0-9a-f.:]+ - `), 23},
	{"apache.log", "combined", regexp.MustCompile(`(?m)^[0-9a-f.:]+ - `), 23},
	// Of HAProxy, two connections more: the script connects until the server is up.
	{"haproxy.log", "haproxy", regexp.MustCompile(`(?m)^[0-9a-f.:]+ \[.*"$`), 25},
	{"haproxy_json.log", "json", regexp.MustCompile(`(?m)^\{"client_ip"`), 25},
	// Caddy logs no request that net/http rejects.
	{"caddy.log", "json", regexp.MustCompile(`(?m)"logger":"http.log.access"`), 20},
}

// TestRecorded reads the access lines of real servers, all of them and no others.
func TestRecorded(t *testing.T) {
	for _, r := range recorded {
		t.Run(r.file, func(t *testing.T) {
			text := must.Get(os.ReadFile(filepath.Join("testdata", r.file)))(t)
			require.Len(t, r.access.FindAll(text, -1), r.requests, "access lines of the server")
			log := must.Get(Open([]string{filepath.Join("testdata", r.file)}, nil))(t)
			defer log.Close()
			requests := make(map[string]int)
			for record := log.Next(); record != nil; record = log.Next() {
				requests[record.Client+" "+record.Method+" "+record.Path]++
				assert.Equal(t, 2026, time.UnixMicro(record.Time).UTC().Year())
			}
			assert.Equal(t, map[string]int64{r.format: int64(r.requests)}, log.Stats().Formats)
			assert.Positive(t, log.Stats().BadLines, "lines of another kind")
			for _, want := range []string{"127.0.0.2 GET /", "127.0.0.3 GET /", "127.0.0.4 GET /"} {
				assert.Equal(t, 2, requests[want], want)
			}
			for _, want := range []string{"127.0.0.1 GET /docs", "127.0.0.1 GET /docs/", "127.0.0.1 GET /missing", "127.0.0.1 GET /denied",
				"127.0.0.1 POST /login", "127.0.0.1 HEAD /", "127.0.0.1 PURGE /cache", "::1 GET /", "127.0.0.1 GET /a/../../etc/passwd"} {
				assert.Equal(t, 1, requests[want], want)
			}
			lines := strings.SplitAfter(string(text), "\n")
			for name, wrap := range wraps { // as a collector passes the log on
				var passed strings.Builder
				for _, line := range lines[:len(lines)-1] {
					passed.WriteString(wrap(strings.TrimSuffix(line, "\n")) + "\n")
				}
				s := NewStream(strings.NewReader(passed.String()), nil)
				assert.Len(t, pathsOf(s.Next), r.requests, name)
			}
		})
	}
}

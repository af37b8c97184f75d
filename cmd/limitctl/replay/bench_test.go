package replay

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/cmd/limitctl/replay/accesslog"
	"github.com/routelimit/limit/internal/must"
)

// writeLog writes a combined log of about so many bytes, and returns how many lines it
// has: 50,000 clients, some far busier than others, on 1,000 paths, with lines that are
// out of order by up to two seconds.
func writeLog(tb testing.TB, path string, size int64) (lines int) {
	rnd := rand.New(rand.NewPCG(7, 8))
	clients := rand.NewZipf(rnd, 1.1, 10, 49_999)
	paths := rand.NewZipf(rnd, 1.2, 5, 999)
	agents := []string{
		"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36",
		"Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.5 Mobile/15E148 Safari/604.1",
		"Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)", "curl/8.5.0",
	}
	out := must.Get(os.Create(path))(tb)
	w := bufio.NewWriter(out)
	now := time.Date(2024, 5, 1, 0, 0, 0, 0, time.UTC)
	for written := 0; int64(written) < size; lines++ {
		now = now.Add(time.Duration(rnd.IntN(20)) * time.Millisecond)
		at := now
		if rnd.IntN(10) == 0 {
			at = at.Add(-time.Duration(rnd.IntN(2000)) * time.Millisecond)
		}
		c, p := clients.Uint64(), paths.Uint64()
		user, request := "-", fmt.Sprintf("GET /items/%d?page=%d", p, rnd.IntN(10))
		switch p % 10 {
		case 1:
			request = "POST /login"
		case 2:
			request = fmt.Sprintf("GET /users/%d/posts", p)
		}
		if c%3 == 0 {
			user = "user" + strconv.Itoa(int(c))
		}
		n := must.Get(fmt.Fprintf(w, "203.%d.%d.%d - %s [%s] \"%s HTTP/1.1\" %d %d \"https://www.example.com/start\" \"%s\"\n",
			c>>16, c>>8&255, c&255, user, at.Format("02/Jan/2006:15:04:05 -0700"), request, []int{200, 200, 200, 304, 404}[rnd.IntN(5)], rnd.IntN(50_000), agents[c%4]))(tb)
		written += n
	}
	require.NoError(tb, w.Flush())
	require.NoError(tb, out.Close())
	return lines
}

// peak returns the most memory that the process has had, in MB; 0 where Linux is not.
func peak() float64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	kb, _ := strconv.Atoi(strings.Fields(rest + " 0")[0])
	return float64(kb) / 1000
}

// A flood is a log in which every client, user, path and agent is new.
type flood struct {
	n, at  int
	record accesslog.Record
}

func (f *flood) Stats() accesslog.Stats { return accesslog.Stats{Lines: int64(f.at)} }

func (f *flood) Err() error { return nil }
func (f *flood) Close()     {}

func (f *flood) Next() *accesslog.Record {
	if f.at == f.n {
		return nil
	}
	f.at++
	i := f.at
	r := &f.record
	r.Time, r.Status, r.Method = 1_700_000_000_000_000+int64(i)*100, 200, "GET"
	r.Client = fmt.Sprintf("%d.%d.%d.%d", 1+i>>24, i>>16&255, i>>8&255, i&255)
	r.User = fmt.Sprintf("a-user-with-a-long-name-%d", i)
	r.Path = fmt.Sprintf("/%0200d", i)
	r.UserAgent = fmt.Sprintf("%0100d", i)
	return r
}

// BenchmarkFlood fills every bound of a replay with its default options, and reports how
// much memory that takes.
func BenchmarkFlood(b *testing.B) {
	rules := limit.MustParse("5/1h per ip; 5/1h per user")
	for _, c := range []struct {
		name    string
		options *Options
	}{
		{"one_set", &Options{Policies: []Policy{{Rules: rules}}}},
		{"two_sets", &Options{Policies: []Policy{{Rules: rules}}, Compare: &Options{Policies: []Policy{{Rules: rules}}}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			const n = 2_000_000
			for b.Loop() {
				result := must.Get(Run(b.Context(), &flood{n: n}, c.options))(b)
				require.EqualValues(b, n, result.Requests)
				require.Positive(b, result.Overflow)
			}
			b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds(), "lines/s")
			b.ReportMetric(peak(), "peak-MB")
		})
	}
}

// BenchmarkLog reads and decides a combined log of LIMIT_LOG_MB (100) MB. Run one case in
// a process to know its memory:
//
//	go test -run '^$' -bench 'Log/decide$' -benchtime 3x .
func BenchmarkLog(b *testing.B) {
	mb, _ := strconv.ParseInt(os.Getenv("LIMIT_LOG_MB"), 10, 64)
	if mb == 0 {
		mb = 100
	}
	path := filepath.Join(b.TempDir(), "access.log")
	lines := writeLog(b, path, mb*1_000_000)
	policies := []Policy{
		{Name: "login", Routes: []string{"POST /login"}, Rules: limit.MustParse("5/1m per ip; 20/1h per user")},
		{Name: "items", Routes: []string{"GET /items/{id}"}, Rules: limit.MustParse("60/1m per ip; 100000/1m global")},
		{Name: "posts", Routes: []string{"GET /users/{id}/posts"}, Rules: limit.MustParse("100/1m per ip token-bucket burst 20")},
	}
	compared := []Policy{{Name: "all", Rules: limit.MustParse("100/1m per ip")}}
	for _, c := range []struct {
		name    string
		options *Options
	}{
		{"parse", nil},
		{"decide", &Options{Policies: policies, NoSuggestions: true}},
		{"suggest", &Options{}},
		{"decide_and_suggest", &Options{Policies: policies}},
		{"compare", &Options{Policies: policies, Compare: &Options{Policies: compared}, NoSuggestions: true}},
	} {
		b.Run(c.name, func(b *testing.B) {
			var refused int64
			for b.Loop() {
				log := must.Get(accesslog.Open([]string{path}, nil))(b)
				if c.options == nil {
					n := 0
					for log.Next() != nil {
						n++
					}
					require.Equal(b, lines, n)
				} else {
					result := must.Get(Run(b.Context(), log, c.options))(b)
					require.EqualValues(b, lines, result.Requests)
					refused = result.Refused
				}
				log.Close()
			}
			b.ReportMetric(float64(lines)*float64(b.N)/b.Elapsed().Seconds(), "lines/s")
			b.ReportMetric(float64(refused)*100/float64(lines), "%refused")
			b.ReportMetric(peak(), "peak-MB")
		})
	}
}

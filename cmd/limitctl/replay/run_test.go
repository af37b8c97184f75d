package replay

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/cmd/limitctl/replay/accesslog"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/operate"
	"github.com/routelimit/limit/rules"
	"github.com/routelimit/limit/stores/memstore"
)

// A hit is a line of a log that a test writes.
type hit struct {
	at             float64 // seconds
	ip, user       string
	request, agent string
	status         int
}

var zero = time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)

// logOf writes JSON lines, whose times are exact.
func logOf(hits []hit) *accesslog.Stream {
	var b strings.Builder
	for _, h := range hits {
		request, status := h.request, h.status
		if request == "" {
			request = "GET /a"
		}
		if status == 0 {
			status = 200
		}
		line, _ := json.Marshal(map[string]any{"time": zero.Add(time.Duration(h.at * 1e9)).Format(time.RFC3339Nano), "client_ip": h.ip, "user": h.user,
			"request": request + " HTTP/1.1", "status": status, "user_agent": h.agent, "host": "example.com"})
		fmt.Fprintf(&b, "%s\n", line)
	}
	return accesslog.NewStream(strings.NewReader(b.String()), nil)
}

func replayed(t *testing.T, hits []hit, o *Options) *Result {
	t.Helper()
	result := must.Get(Run(t.Context(), logOf(hits), o))(t)
	must.Get(json.Marshal(result))(t)
	return result
}

func at(seconds float64) time.Time { return zero.Add(time.Duration(seconds * 1e9)) }

// TestResult checks a log by hand: 2 a minute for each address on /a.
func TestResult(t *testing.T) {
	result := replayed(t, []hit{
		{at: 0, ip: "192.0.2.1", agent: "curl/8"},
		{at: 1, ip: "192.0.2.1", agent: "curl/8"},
		{at: 2, ip: "192.0.2.1", agent: "curl/8"}, // refused until 60
		{at: 3, ip: "192.0.2.2", agent: "Mozilla"},
		{at: 10, ip: "192.0.2.1", agent: "curl/8"}, // refused, in the same stay
		{at: 11, ip: "192.0.2.1", request: "POST /b"},
		{at: 60, ip: "192.0.2.1", agent: "curl/8"},   // admitted: the one at 0 has left
		{at: 60.5, ip: "192.0.2.1", agent: "curl/8"}, // refused until 61
		{at: 61, ip: "192.0.2.2", agent: "Mozilla"},
	}, &Options{Policies: []Policy{{Name: "a", Routes: []string{"GET /a"}, Rules: limit.MustParse("2/1m per ip")},
		{Name: "unused", Routes: []string{"GET /none/{id}"}, Rules: limit.MustParse("1/1m global")}}})
	assert.EqualValues(t, 9, result.Lines)
	assert.EqualValues(t, 9, result.Requests)
	assert.EqualValues(t, 3, result.Refused)
	assert.EqualValues(t, 1, result.NoRoute)
	assert.EqualValues(t, 2, result.Clients)
	assert.EqualValues(t, 1, result.RefusedClients)
	assert.Equal(t, at(0), result.From)
	assert.Equal(t, at(61), result.To)
	assert.Equal(t, []RouteResult{{Route: "GET /a", Requests: 8, Refused: 3}, {Route: "POST /b", Requests: 1}}, result.Routes)
	assert.Equal(t, PolicyResult{Name: "a", Routes: []string{"GET /a"}, Requests: 8, Refused: 3, Rules: []RuleResult{
		{Name: "per-ip-1m", Rule: "2/1m per ip", Refused: 3, Alone: 3, Keys: []KeyCount{{Key: "192.0.2.1", Refused: 3}}}}}, result.Policies[0])
	assert.Equal(t, []Client{{Address: "192.0.2.1", Agent: "curl/8", Requests: 7, Refused: 3, First: at(2), Last: at(60.5), Longest: 58 * time.Second}}, result.Refusals)
	assert.EqualValues(t, 2, result.Stays.Count)
	assert.Equal(t, 58*time.Second, result.Stays.Max)
	assert.InDelta(t, 0.5, result.Stays.P50.Seconds(), 0.01)
	assert.Equal(t, time.Second, result.Width)
	assert.Equal(t, Bucket{at(2), 1, 1}, result.Buckets[2])
	assert.Len(t, result.Buckets, 8)
	assert.Contains(t, result.Notes, `policy "unused" matches no request of the log: its routes are GET /none/{id}`)
	assert.Contains(t, result.Notes, "1 of 9 requests are on routes without a policy")
	assert.Nil(t, result.Comparison)
}

// TestStays checks that a stay lasts until the client is admitted everywhere again: a
// later refusal by a shorter rule does not end it.
func TestStays(t *testing.T) {
	result := replayed(t, []hit{
		{at: 0, ip: "1.1.1.1"}, {at: 1, ip: "1.1.1.1"}, // refused on /a until 3600
		{at: 2, ip: "1.1.1.1", request: "GET /b"}, {at: 3, ip: "1.1.1.1", request: "GET /b"}, // refused on /b until 12
		{at: 20, ip: "1.1.1.1"}, // refused on /a
	}, &Options{Policies: []Policy{{Routes: []string{"/a"}, Rules: limit.MustParse("1/1h per ip")}, {Routes: []string{"/b"}, Rules: limit.MustParse("1/10s per ip")}}})
	assert.EqualValues(t, 3, result.Refused)
	assert.EqualValues(t, 1, result.Stays.Count)
	assert.Equal(t, 3599*time.Second, result.Stays.Max)
}

// TestTogether checks that a request that one rule refuses is charged to none, and that
// policies without routes decide first.
func TestTogether(t *testing.T) {
	hits := []hit{{at: 0, ip: "1.1.1.1"}, {at: 1, ip: "1.1.1.1"}, {at: 2, ip: "2.2.2.2"}, {at: 3, ip: "3.3.3.3"}, {at: 4, ip: "3.3.3.3", request: "GET /b"}, {at: 5, ip: "3.3.3.3", request: "GET /b"}}
	result := replayed(t, hits, &Options{Policies: []Policy{
		{Name: "a", Routes: []string{"GET /a"}, Rules: limit.MustParse("1/1m per ip; 2/1m global")},
		{Name: "all", Rules: limit.MustParse("3/1m global")},
	}})
	// 1.1.1.1 takes one, is refused by its own rule, 2.2.2.2 takes the second, 3.3.3.3 is
	// refused by the global rule alone. The policy of all has given two back, and admits one.
	assert.EqualValues(t, 3, result.Refused)
	rules := result.Policies[0].Rules
	assert.Equal(t, []int64{1, 1, 1, 1}, []int64{rules[0].Refused, rules[0].Alone, rules[1].Refused, rules[1].Alone})
	assert.Equal(t, []KeyCount{{Key: "(all requests)", Refused: 1}}, rules[1].Keys)
	assert.EqualValues(t, 1, result.Policies[1].Refused)
	assert.EqualValues(t, 6, result.Policies[1].Requests)
	assert.EqualValues(t, 2, result.Policies[1].GivenBack)
	assert.Zero(t, result.Policies[0].GivenBack)
}

// TestLayers compares policies around each other with a server that has the same sets.
func TestLayers(t *testing.T) {
	sets := []limit.RuleSet{
		limit.Named("application", limit.MustParse("60/1m global; 7/10s per ip; tries: 25/1m per ip attempts; 12/1m per ip shadow").Rules()...),
		limit.Named("group", limit.MustParse("3/10s per ip token-bucket burst 1").Rules()...),
		limit.Named("route", limit.MustParse("3/10s per ip fixed-window; 30/1m global").Rules()...),
	}
	random := rand.New(rand.NewPCG(1, 2))
	var hits []hit
	for now := 0.0; len(hits) < 3000; now += random.ExpFloat64() / 2 {
		hits = append(hits, hit{at: now, ip: fmt.Sprint("10.0.0.", random.IntN(4))})
	}
	result := replayed(t, hits, &Options{Policies: []Policy{{Rules: sets[0]}, {Rules: sets[1]}, {Routes: []string{"GET /a"}, Rules: sets[2]}}})

	clock := int64(0)
	limiter := limit.New(memstore.New(&memstore.Options{Now: func() int64 { return clock }}), &limit.Options{Log: slog.New(slog.DiscardHandler)})
	givenBack, refused := map[string]int64{}, map[string]int64{}
	operate.Observe(limiter, func(_ *http.Request, d limit.Decision, _ error) {
		switch {
		case d.GivenBack:
			givenBack[d.Policy]++
		case !d.Allowed:
			refused[d.Policy]++
		}
	})
	h := http.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, set := range slices.Backward(sets) {
		h = limiter.Limit(set)(h)
	}
	for _, hit := range hits {
		clock = at(hit.at).UnixMicro()
		r := httptest.NewRequest("GET", "/a", nil)
		r.RemoteAddr = hit.ip + ":1"
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	for i, name := range []string{"application", "group", "route"} {
		p := result.Policies[i]
		assert.Equal(t, []int64{refused[name], givenBack[name]}, []int64{p.Refused, p.GivenBack}, name)
		assert.NotZero(t, p.Refused, name)
		assert.Equal(t, i < 2, p.GivenBack > 0, name)
	}
}

// TestOrder checks that lines are sorted as far as Options.Reorder allows.
func TestOrder(t *testing.T) {
	hits := []hit{{at: 10, ip: "1.1.1.1"}, {at: 0, ip: "1.1.1.1"}, {at: 12, ip: "1.1.1.1"}, {at: 11, ip: "1.1.1.1"}}
	policies := []Policy{{Rules: limit.MustParse("1/5s per ip")}}
	sorted := replayed(t, hits, &Options{Policies: policies})
	assert.EqualValues(t, 2, sorted.Refused) // admitted at 0 and 10
	assert.Zero(t, sorted.Late)
	unsorted := replayed(t, hits, &Options{Policies: policies, Reorder: -1})
	assert.EqualValues(t, 3, unsorted.Refused) // the one at 0 is decided at 10, and that at 11 at 12
	assert.EqualValues(t, 2, unsorted.Late)
	assert.Contains(t, unsorted.Notes[0], "2 requests came more than 0 lines late")
	short := replayed(t, hits, &Options{Policies: policies, Reorder: 1})
	assert.EqualValues(t, 2, short.Refused)
	assert.Zero(t, short.Late)
}

// TestFarTimes checks that one wrong time does not change the decisions on other lines.
func TestFarTimes(t *testing.T) {
	hits := []hit{{at: 0, ip: "1.1.1.1"}, {at: 5e9, ip: "9.9.9.9"}, {at: 1, ip: "1.1.1.1"}, {at: -1e9, ip: "9.9.9.9"}, {at: 61, ip: "1.1.1.1"}}
	result := replayed(t, hits, &Options{Policies: []Policy{{Rules: limit.MustParse("1/1m per ip")}}})
	assert.EqualValues(t, 1, result.Refused)
	assert.Zero(t, result.Late)

	text := `{"time":"0000-01-01T00:00:00Z","uri":"/","method":"GET"}` + "\n" + `{"time":"9999-12-31T23:59:59Z","uri":"/","method":"GET"}` + "\n" +
		`{"time":"2024-05-01T12:00:00Z","uri":"/","method":"GET"}` + "\n" + `{"time":"2024-05-01T12:00:00Z","request":"\u0016\u0003","status":400}`
	result = must.Get(Run(t.Context(), accesslog.NewStream(strings.NewReader(text), nil), nil))(t)
	assert.Equal(t, []int64{4, 0, 2, 1, 1}, []int64{result.Lines, result.BadLines, result.BadTimes, result.NotHTTP, result.Requests})
	assert.Contains(t, result.Notes, "2 lines have a time before 1970 or after 2255, and were left out")
	assert.Contains(t, result.Notes, "1 requests have no address of a client; rules per ip count them as one client")
}

// TestCompare checks two sets of policies on one log.
func TestCompare(t *testing.T) {
	hits := []hit{{at: 0, ip: "1.1.1.1"}, {at: 1, ip: "1.1.1.1"}, {at: 2, ip: "1.1.1.1"}, {at: 3, ip: "2.2.2.2", user: "al"}, {at: 4, ip: "3.3.3.3", user: "al"}}
	result := replayed(t, hits, &Options{Policies: []Policy{{Rules: limit.MustParse("1/1m per ip")}}, Compare: &Options{Policies: []Policy{{Rules: limit.MustParse("2/1m per user")}}}})
	// The old ones refuse the requests at 1 and 2. The new ones let two without a user
	// through, and refuse that at 2.
	c := result.Comparison
	assert.Equal(t, []int64{3, 1, 1, 0}, []int64{c.BothAdmit, c.BothRefuse, c.OnlyOld, c.OnlyNew})
	assert.EqualValues(t, 2, result.Refused)
	assert.EqualValues(t, 1, c.Policies[0].Refused)
	assert.Equal(t, "(none)", c.Policies[0].Rules[0].Keys[0].Key)

	result = replayed(t, hits, &Options{Compare: &Options{Policies: []Policy{{Rules: limit.MustParse("1/1m per user")}}}})
	assert.EqualValues(t, 3, result.Comparison.OnlyNew)
	assert.Equal(t, []KeyCount{{Key: "1.1.1.1", Refused: 2}, {Key: "3.3.3.3", Refused: 1}}, result.Comparison.NewlyRefused)
	assert.EqualValues(t, 3, result.Routes[0].OnlyNew)
}

// TestKeys checks every kind of key that a log can have.
func TestKeys(t *testing.T) {
	format := must.Get(accesslog.ParseFormat("json header:x-api-key=key cookie:sid=sid"))(t)
	line := func(second int, ip, key, sid, uri string) string {
		return fmt.Sprintf(`{"time":%d,"client_ip":%q,"key":%q,"sid":%q,"method":"GET","uri":%q,"status":200}`, 1_700_000_000+second, ip, key, sid, uri)
	}
	text := strings.Join([]string{
		line(0, "2001:db8::1", "k1", "s,1", "/u/7?q=x"), line(1, "2001:db8::2", "k1", "s,1", "/u/7?q=x"),
		line(2, "10.0.0.1", "k2", "", "/u/8?q=y"), line(3, "10.0.0.1", "k1", "s2", "/u/9?q=z"),
	}, "\n")
	for rule, want := range map[string][]KeyCount{
		"1/1m per ip":                 {{Key: "10.0.0.1", Refused: 1}, {Key: "2001:db8::/64", Refused: 1}},
		"1/1m per header X-API-Key":   {{Key: "k1", Refused: 2}},
		"1/1m per cookie sid":         {{Key: "s,1", Refused: 1}},
		"1/1m per query q":            {{Key: "x", Refused: 1}},
		"1/1m per path id":            {{Key: "7", Refused: 1}},
		"1/1m per user or path id":    {{Key: "7", Refused: 1}},
		"1/1m per path id and ip":     {{Key: "7, 2001:db8::/64", Refused: 1}},
		"2/1m per user or cookie sid": nil,
		"3/1m global":                 {{Key: "(all requests)", Refused: 1}},
	} {
		result := must.Get(Run(t.Context(), accesslog.NewStream(strings.NewReader(text), &accesslog.Options{Format: format}),
			&Options{Policies: []Policy{{Routes: []string{"GET /u/{id}"}, Rules: limit.MustParse(rule)}}}))(t)
		assert.Equal(t, want, result.Policies[0].Rules[0].Keys, rule)
	}
}

// TestScope checks that sets count by name, by route and by declaration as on a server.
func TestScope(t *testing.T) {
	hits := []hit{{at: 0, ip: "1.1.1.1", request: "GET /x"}, {at: 1, ip: "1.1.1.1", request: "GET /y"}, {at: 2, ip: "1.1.1.1", request: "GET //x"}, {at: 3, ip: "1.1.1.1", request: "BAD /x"}}
	for _, e := range []struct {
		rules   limit.RuleSet
		refused int64
	}{
		{limit.Named("both", limit.PerIP(time.Minute, 1)), 2},
		{limit.EachRoute(limit.PerIP(time.Minute, 1)), 1},
	} {
		result := replayed(t, hits, &Options{Policies: []Policy{{Routes: []string{"GET /x", "GET /y"}, Rules: e.rules}}})
		assert.Equal(t, e.refused, result.Refused, e.rules.String())
		assert.EqualValues(t, 1, result.NoRoute, "//x counts as /x, and there is no BAD /x")
	}
	result := replayed(t, hits, &Options{Policies: []Policy{{Routes: []string{"example.com/x"}, Rules: limit.MustParse("1/1m global")}}})
	assert.EqualValues(t, 2, result.Refused)
	assert.Equal(t, "example.com/x", result.Routes[0].Route)
}

// TestWith replays policies that share the quota of a third one.
func TestWith(t *testing.T) {
	app := limit.Named("app", limit.Rule{Name: "all", Key: limit.ByIP, Limit: 3, Window: time.Minute})
	group := limit.Named("group", limit.PerIP(time.Minute, 4)).With(app)
	hits := []hit{{at: 0, ip: "1.1.1.1", request: "GET /x"}, {at: 1, ip: "1.1.1.1", request: "GET /x"}, {at: 2, ip: "1.1.1.1", request: "GET /y"},
		{at: 3, ip: "1.1.1.1", request: "GET /y"}, {at: 4, ip: "1.1.1.1", request: "GET /z"}}
	result := replayed(t, hits, &Options{Policies: []Policy{
		{Routes: []string{"GET /x"}, Rules: limit.Named("x", limit.PerIP(time.Minute, 1)).With(app)},
		{Routes: []string{"GET /y"}, Rules: limit.Named("y").With(group, app)},
		{Routes: []string{"GET /z"}, Rules: group},
	}})
	assert.EqualValues(t, 2, result.Refused, "the second of x takes nothing from the others; z is one too many for app")
	names := make(map[string][]string)
	for _, p := range result.Policies {
		for _, r := range p.Rules {
			names[p.Name] = append(names[p.Name], fmt.Sprint(r.Name, " ", r.Refused))
		}
	}
	assert.Equal(t, map[string][]string{"GET /x": {"per-ip-1m 1", "all 0"}, "GET /y": {"per-ip-1m 0", "all 0"}, "GET /z": {"per-ip-1m 0", "all 1"}}, names)
	_, err := Run(t.Context(), logOf(nil), &Options{Policies: []Policy{{Name: "x", Rules: limit.MustParse("1/1s global; with app")}}})
	assert.ErrorContains(t, err, `policy "x": limit: with app: no policy has that name`)
}

// TestUnreplayable checks rules that a log cannot decide, shadows, bans, and the
// program's own lists.
func TestUnreplayable(t *testing.T) {
	hits := []hit{{at: 0, ip: "1.1.1.1"}, {at: 1, ip: "1.1.1.1"}, {at: 2, ip: "1.1.1.1"}, {at: 3, ip: "2.2.2.2"}, {at: 4, ip: "3.3.3.3"}}
	result := replayed(t, hits, &Options{Policies: []Policy{{Rules: limit.Named("all", limit.Rule{Key: limit.ByIP, Limit: 1, Algorithm: limit.Concurrency{}},
		limit.Rule{Name: "watch", Key: limit.ByIP, Limit: 2, Window: time.Minute, Shadow: &rules.Shadow{}},
		limit.Rule{Name: "counts", Key: limit.ByIP, Limit: 9, Window: time.Minute, Settle: rules.OnStatus(401)})}}})
	assert.Zero(t, result.Refused)
	assert.EqualValues(t, 1, result.Policies[0].Rules[1].Shadowed)
	require.Len(t, result.Notes, 2)
	assert.Contains(t, result.Notes[0], "in flight")
	assert.Contains(t, result.Notes[1], "settles")

	result = replayed(t, hits, &Options{
		Policies: []Policy{{Rules: limit.MustParse("1/1s global")}, {Name: "ban", Rules: limit.MustParse("2/1m per ip; 1/1m per ip ban 1h")}},
		Exempt:   func(c limit.Client) bool { return c.Request.RemoteAddr == "2.2.2.2" },
		Bar: func(c limit.Client) time.Duration {
			if c.IP() == netip.MustParseAddr("3.3.3.3") {
				return limit.Never
			}
			return 0
		},
	})
	assert.Equal(t, []int64{2, 1, 1, 1}, []int64{result.Refused, result.Exempt, result.Barred, result.Stays.Never})
	global, ban := result.Policies[0], result.Policies[1]
	assert.Equal(t, []int64{3, 2, 0}, []int64{global.Requests, global.Listed, global.Refused}, "lists decide the other two")
	assert.Equal(t, []int64{3, 1, 1}, []int64{ban.Requests, ban.Listed, ban.Refused}, "the barred client was refused before")
	assert.Equal(t, time.Hour, result.Refusals[0].Longest, "the strike of the third request bars the client")
}

func TestErrors(t *testing.T) {
	for want, o := range map[string]*Options{
		"no user resolver":                      nil,
		"write POST":                            nil,
		"both match some paths":                 {Policies: []Policy{{Routes: []string{"GET /a/{x}", "GET /{y}/b"}, Rules: limit.MustParse("1/1s global")}}},
		"write a pattern":                       {Policies: []Policy{{Routes: []string{"GET  /a {"}, Rules: limit.MustParse("1/1s global")}}},
		"no rules":                              {Policies: []Policy{{Rules: limit.Rules()}}},
		`write "path id"`:                       {Policies: []Policy{{Routes: []string{"GET /{id}"}, Rules: limit.MustParse("1/1s per path name")}}},
		"negative number":                       {MaxKeys: -1},
		"different rules":                       nil,
		`policy "old"`:                          {Policies: []Policy{{Name: "old", Routes: []string{"{"}, Rules: limit.MustParse("1/1s global")}}},
		`route "GET /a": it stands there twice`: {Policies: []Policy{{Routes: []string{"GET /a", "GET /a"}, Rules: limit.MustParse("1/1s global")}}},
	} {
		if o == nil {
			continue
		}
		_, err := Run(t.Context(), logOf(nil), o)
		require.Error(t, err, want)
		assert.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "side.go")
	}
	_, err := Run(t.Context(), accesslog.NewStream(strings.NewReader("what?"), nil), nil)
	assert.ErrorContains(t, err, "no known log format")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	result, err := Run(ctx, logOf(nil), nil)
	assert.ErrorIs(t, err, context.Canceled)
	assert.NotNil(t, result)
}

// TestEmpty checks a log without a line.
func TestEmpty(t *testing.T) {
	result := replayed(t, nil, &Options{Policies: []Policy{{Rules: limit.MustParse("1/1s global")}}})
	assert.Zero(t, result.Lines)
	assert.True(t, result.From.IsZero())
	assert.Empty(t, result.Notes)
	text := must.Get(json.Marshal(result))(t)
	assert.NotContains(t, string(text), `"from"`)
	assert.NotContains(t, string(text), `"to"`)
	assert.Contains(t, string(text), `"refusals":[],"width_ns":1000000000,"buckets":[]`)
}

// TestFiles checks a replay of several files: a rotated one, one that was cut off, and
// one of no known format.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	line := func(second int) string {
		return fmt.Sprintf("192.0.2.1 - - [01/May/2024:12:00:%02d +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"-\"\n", second)
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	must.Get(io.WriteString(z, line(3)+line(4)))(t)
	require.NoError(t, z.Close())
	for name, data := range map[string][]byte{"access.log": []byte(line(5) + line(6)), "access.log.1": []byte(line(1) + line(2)),
		"access.log.2.gz": zipped.Bytes()[:zipped.Len()-4], "access.log.note": []byte("hello\n")} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	log := must.Get(accesslog.Open([]string{filepath.Join(dir, "access.log*")}, nil))(t)
	defer log.Close()
	result := must.Get(Run(t.Context(), log, &Options{Policies: []Policy{{Rules: limit.MustParse("2/10s per ip; 1/2s per ip queue burst 2")}}, Reorder: -1}))(t)
	assert.EqualValues(t, 6, result.Requests)
	assert.EqualValues(t, 4, result.Refused)
	assert.EqualValues(t, 1, result.Policies[0].Delayed)
	assert.Zero(t, result.Late)
	require.Len(t, result.Files, 4)
	notes := strings.Join(result.Notes, "\n")
	assert.Contains(t, notes, "access.log.2.gz ends early after 2 lines: unexpected EOF")
	assert.Contains(t, notes, "access.log.note: no known log format")
}

func TestCompareLists(t *testing.T) {
	hits := []hit{{at: 1, ip: "192.0.2.1", user: "al"}, {at: 2, ip: "192.0.2.2", user: "eve"}, {at: 3, ip: "192.0.2.1", user: "al"}}
	one := []Policy{{Rules: limit.MustParse("1/1m per ip")}}
	al := func(c limit.Client) bool { return c.User() == "al" }
	o := &Options{Policies: one, Compare: &Options{Policies: one, Exempt: al}, Exempt: al}
	result := replayed(t, hits, o)
	assert.Equal(t, []int64{2, 0, 0}, []int64{result.Exempt, result.Refused, result.Comparison.OnlyNew})
	o.Compare.Exempt = nil
	o.Compare.Bar = func(c limit.Client) time.Duration {
		if c.User() == "eve" {
			return limit.Never
		}
		return 0
	}
	result = replayed(t, hits, o)
	assert.Equal(t, []int64{2, 0, 2}, []int64{result.Exempt, result.Refused, result.Comparison.OnlyNew})
}

func TestGuessedRoutes(t *testing.T) {
	result := replayed(t, []hit{{at: 1, request: "POST /login", status: 401}, {at: 2, request: "GET /busy", status: 429},
		{at: 3, request: "GET /admin", status: 401}, {at: 4, request: "GET /none", status: 404}}, nil)
	counts := make(map[string]int64)
	for _, r := range result.Routes {
		counts[r.Route] = r.Requests
	}
	assert.Equal(t, map[string]int64{"POST /login": 1, "GET /busy": 1, "(other routes)": 2}, counts)
}

func TestUncleanPaths(t *testing.T) {
	result := replayed(t, []hit{{ip: "192.0.2.1", at: 1, request: "POST //login"}, {ip: "192.0.2.1", at: 2, request: "POST /a/../login"}, {ip: "192.0.2.1", at: 3, request: "POST /login"}, {ip: "192.0.2.1", at: 4, request: "GET /tree"},
		{ip: "192.0.2.1", at: 5, request: "GET //example.org/x"}, {ip: "192.0.2.1", at: 6, request: "POST /login/"}},
		&Options{Policies: []Policy{{Routes: []string{"POST /login"}, Rules: limit.MustParse("1/1m per ip")}, {Routes: []string{"/tree/"}, Rules: limit.MustParse("1/1m per ip")}}})
	assert.Equal(t, []int64{3, 1, 2, 2}, []int64{result.Policies[0].Requests, result.Policies[1].Requests, result.Refused, result.NoRoute})

	// As the handlers of package policyfile do, these policies decide by each reading of a path.
	result = replayed(t, []hit{{at: 1, request: "GET /items%2F7%2Fedit"}, {at: 2, request: "GET /files/../items/9/edit"}, {at: 3, request: "CONNECT //items/7/edit"}},
		&Options{Policies: []Policy{{Routes: []string{"/items/{id}/edit"}, Rules: limit.MustParse("1/1m per path id")}, {Routes: []string{"/files/"}, Rules: limit.MustParse("5/1m global")}}})
	assert.Equal(t, []int64{3, 1, 1, 0}, []int64{result.Policies[0].Requests, result.Policies[1].Requests, result.Refused, result.NoRoute})
}

// TestUncleanPathGivesBack has the policy of one reading of a path refuse a request that that of
// another has admitted.
func TestUncleanPathGivesBack(t *testing.T) {
	const both = "GET /files/../items/9"
	result := replayed(t, []hit{{at: 1, request: both}, {at: 2, request: both}, {at: 3, request: "GET /items/9"}, {at: 4, request: "GET /items/9"}},
		&Options{Policies: []Policy{{Routes: []string{"/items/{id}"}, Rules: limit.MustParse("2/1m per path id")}, {Routes: []string{"/files/"}, Rules: limit.MustParse("1/1m global")}}})
	items, files := result.Policies[0], result.Policies[1]
	assert.Equal(t, []int64{1, 1, 1, 2}, []int64{items.Refused, items.GivenBack, files.Refused, result.Refused})
}

// TestCallers replays rules that tell callers apart by what no log has.
func TestCallers(t *testing.T) {
	rules := limit.MustParse("2/1m per ip plan pro 100 reserve critical 1 exempt plan pro exempt class critical exempt ip 192.0.2.9")
	result := replayed(t, []hit{
		{at: 0, ip: "192.0.2.1"}, {at: 1, ip: "192.0.2.1"}, {at: 2, ip: "192.0.2.1"},
		{at: 3, ip: "192.0.2.9"}, {at: 4, ip: "192.0.2.9"}, {at: 5, ip: "192.0.2.9"},
	}, &Options{Policies: []Policy{{Name: "a", Routes: []string{"GET /a"}, Rules: rules}}})
	assert.EqualValues(t, 1, result.Refused, "the third, of a client that is not exempt")
	for _, note := range []string{"has limits for plans", "reserves units for classes", "exempts plans or classes"} {
		assert.Contains(t, strings.Join(result.Notes, "\n"), note)
	}
}

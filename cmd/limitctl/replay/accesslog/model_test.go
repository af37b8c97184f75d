package accesslog_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/cmd/limitctl/replay"
	"github.com/routelimit/limit/cmd/limitctl/replay/accesslog"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/race"
)

// A modelRule is a plain count of what was admitted in the last window.
type modelRule struct {
	limit    int
	window   time.Duration
	key      func(accesslog.TestLine) string
	admitted map[string][]time.Time
	refused  int64
}

func (r *modelRule) fits(l accesslog.TestLine, now time.Time) bool {
	n := 0
	for _, at := range r.admitted[r.key(l)] {
		if at.After(now.Add(-r.window)) {
			n++
		}
	}
	return n < r.limit
}

// model decides the lines of a log, slowly, and returns the numbers of those that are
// refused.
func model(lines []accesslog.TestLine, rules map[string][]*modelRule) (refused []string) {
	type timed struct {
		accesslog.TestLine
		at time.Time
	}
	var sorted []timed
	for _, l := range lines {
		at, err := time.Parse("2006-01-02T15:04:05.999999Z", l.Time)
		if err != nil {
			panic(err)
		}
		sorted = append(sorted, timed{l, at})
	}
	slices.SortStableFunc(sorted, func(a, b timed) int { return a.at.Compare(b.at) })
	for _, l := range sorted {
		all := rules[l.Method+" "+l.Path]
		fits := true
		for _, r := range all {
			if !r.fits(l.TestLine, l.at) {
				fits = false
				r.refused++
			}
		}
		if !fits {
			refused = append(refused, l.Client)
			continue
		}
		for _, r := range all {
			r.admitted[r.key(l.TestLine)] = append(r.admitted[r.key(l.TestLine)], l.at)
		}
	}
	return refused
}

func byClient(l accesslog.TestLine) string { return l.Client }
func byUser(l accesslog.TestLine) string   { return l.User }
func byAll(accesslog.TestLine) string      { return "" }

// TestModel compares the replay with a plain sliding window, for each format, on random
// logs whose lines are out of order.
func TestModel(t *testing.T) {
	race.Skip(t)
	for i, name := range accesslog.WriterFormats() {
		t.Run(strings.ReplaceAll(name, "|", " "), func(t *testing.T) {
			format := must.Get(accesslog.ParseFormat(name))(t)
			for seed := range uint64(4) {
				compareWithModel(t, format, i, rand.New(rand.NewPCG(seed, uint64(i))))
			}
		})
	}
}

func compareWithModel(t *testing.T, format *accesslog.Format, writer int, rnd *rand.Rand) {
	var lines []accesslog.TestLine
	var text bytes.Buffer
	compressed := gzip.NewWriter(&text)
	now := int64(1_700_000_000_000_000)
	const n, bad = 2_000, 4
	for i := range n {
		now += rnd.Int64N(700_000)
		late := int64(0)
		if rnd.IntN(3) == 0 {
			late = rnd.Int64N(20_000_000)
		}
		method, path := "GET", "/items"
		switch rnd.IntN(4) {
		case 0:
			method, path = "POST", "/login"
		case 1:
			path = "/free"
		}
		l := accesslog.WriteTestLine(writer, rnd, now-late, fmt.Sprintf("192.0.2.%d", 1+rnd.IntN(5)), []string{"", "al", "bo"}[rnd.IntN(3)], method, path)
		lines = append(lines, l)
		fmt.Fprintln(compressed, l.Text)
		if i%(n/bad) == 1 {
			fmt.Fprintln(compressed, "no line of any format \x1b[31m")
		}
	}
	require.NoError(t, compressed.Close())

	rules := map[string][]*modelRule{
		"POST /login": {
			{limit: 3, window: 10 * time.Second, key: byClient, admitted: map[string][]time.Time{}},
			{limit: 8, window: 20 * time.Second, key: byUser, admitted: map[string][]time.Time{}},
		},
		"GET /items": {
			{limit: 4, window: 5 * time.Second, key: byClient, admitted: map[string][]time.Time{}},
			{limit: 30, window: time.Minute, key: byAll, admitted: map[string][]time.Time{}},
		},
	}
	if !slices.ContainsFunc(lines, func(l accesslog.TestLine) bool { return l.User != "" }) {
		rules["POST /login"][1].limit = n // left out, since the format has no user
	}
	refused := model(lines, rules)
	require.NotEmpty(t, refused)

	result := must.Get(replay.Run(t.Context(), accesslog.NewStream(&text, &accesslog.Options{Format: format}), &replay.Options{Policies: []replay.Policy{
		{Name: "login", Routes: []string{"POST /login"}, Rules: limit.MustParse("3/10s per ip; 8/20s per user")},
		{Name: "items", Routes: []string{"GET /items"}, Rules: limit.MustParse("4/5s per ip; 30/1m global")},
	}}))(t)
	assert.EqualValues(t, n+bad, result.Lines)
	assert.EqualValues(t, bad, result.BadLines)
	assert.EqualValues(t, n, result.Requests)
	assert.EqualValues(t, len(refused), result.Refused)
	assert.Zero(t, result.Late)
	for i, route := range []string{"POST /login", "GET /items"} {
		for j, rule := range rules[route] {
			assert.Equal(t, rule.refused, result.Policies[i].Rules[j].Refused, "%s, rule %d", route, j)
		}
	}
	counts := make(map[string]int64)
	for _, client := range refused {
		counts[client]++
	}
	require.Len(t, result.Refusals, len(counts))
	for _, c := range result.Refusals {
		assert.Equal(t, counts[c.Address], c.Refused, c.Address)
	}
}

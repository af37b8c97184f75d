package deploy_test

import (
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const scrape = 15 * time.Second

// Scraped series are those that Prometheus has, and a set of them.
type scrapedSeries []storage.Series

func (s *scrapedSeries) Next() bool                        { *s = (*s)[1:]; return len(*s) > 0 }
func (s *scrapedSeries) At() storage.Series                { return (*s)[0] }
func (s *scrapedSeries) Err() error                        { return nil }
func (s *scrapedSeries) Warnings() annotations.Annotations { return nil }

// load reads series in the notation of promtool, with a value for each scrape.
func load(t *testing.T, lines []string) *storage.MockQueryable {
	t.Helper()
	var all []promql.Series
	for _, line := range lines {
		metric, values, err := promQL.ParseSeriesDesc(line)
		require.NoError(t, err, line)
		series := promql.Series{Metric: metric}
		for i, v := range values {
			if !v.Omitted {
				series.Floats = append(series.Floats, promql.FPoint{T: int64(i) * scrape.Milliseconds(), F: v.Value})
			}
		}
		all = append(all, series)
	}
	return &storage.MockQueryable{MockQuerier: &storage.MockQuerier{
		SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
			found := scrapedSeries{nil}
			for _, series := range all {
				matches := true
				for _, m := range matchers {
					matches = matches && m.Matches(series.Metric.Get(m.Name))
				}
				if matches {
					found = append(found, promql.NewStorageSeries(series))
				}
			}
			return &found
		},
	}}
}

// firing returns from and until when each alert fires, in seconds, as Prometheus decides it.
func firing(t *testing.T, lines ...string) map[string][2]int {
	t.Helper()
	text, err := os.ReadFile("../../ops/deploy/prometheus-alerts.yml")
	require.NoError(t, err)
	groups, errs := rulefmt.Parse(text, false, model.UTF8Validation, promQL, slog.New(slog.DiscardHandler))
	require.Empty(t, errs)
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, Parser: promQL})
	found := map[string][2]int{}
	for _, rule := range groups.Groups[0].Rules {
		q, err := engine.NewRangeQuery(t.Context(), load(t, lines), nil, rule.Expr, time.Unix(0, 0), time.Unix(3600, 0), scrape)
		require.NoError(t, err)
		result, err := q.Exec(t.Context()).Matrix()
		require.NoError(t, err)
		for _, series := range result {
			since, last := int64(0), int64(-1)
			for _, p := range series.Floats {
				if last < 0 || p.T > last+scrape.Milliseconds() {
					since = p.T
				}
				last = p.T
				if p.T-since < time.Duration(rule.For).Milliseconds() {
					continue
				}
				f, again := found[rule.Alert]
				if !again {
					f[0] = int(p.T / 1000)
				}
				f[1] = int(p.T / 1000)
				found[rule.Alert] = f
			}
		}
	}
	return found
}

// outage returns the series of an instance whose store fails after ten minutes for some scrapes,
// and which then owes for some more.
func outage(scrapes, owing int) []string {
	const of = `{job="api",instance="api-1"`
	return []string{
		fmt.Sprintf(`rate_limiting_store_unavailable%s} 0x39 1x%d 0x200`, of, scrapes-1),
		fmt.Sprintf(`rate_limiting_store_outages_total%s} 0x39 1x240`, of),
		fmt.Sprintf(`rate_limiting_store_owed%s} 0x39 9x%d 0x200`, of, scrapes+owing-1),
		fmt.Sprintf(`rate_limiting_requests_total%s,policy="p",result="admitted",mode="exact"} 0+100x39 3900x%d 3900+100x200`, of, scrapes-1),
		fmt.Sprintf(`rate_limiting_requests_total%s,policy="p",result="admitted",mode="local"} _x40 100+100x%d %dx200`, of, scrapes-1, 100*scrapes),
	}
}

// TestAlertsInOutage has the alerts fire while an outage lasts, and not after it.
func TestAlertsInOutage(t *testing.T) {
	assert.Empty(t, firing(t, outage(1, 0)...), "16 s")
	assert.Equal(t, map[string][2]int{
		"RateLimitStoreUnavailable":      {660, 600 + 19*15},
		"RateLimitAdmittingWithoutStore": {675, 600 + 19*15}, // the first count of a mode is no rate
	}, firing(t, outage(20, 1)...), "5 minutes")
	assert.Equal(t, map[string][2]int{"RateLimitDebtsUnpaid": {675, 600 + 9*15}}, firing(t, outage(1, 9)...), "16 s, and debts for more than two minutes")
	assert.Equal(t, map[string][2]int{"RateLimitRepeatedOutages": {660, 1470}},
		firing(t, `rate_limiting_store_outages_total{job="api",instance="api-1"} 0x39 1 1 2 2 3x200`))
}

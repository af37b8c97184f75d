package deploy_test

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/ops/metrics/promlimit"
)

// traffic returns a function that makes decisions of every kind.
func traffic(t *testing.T, registry *prometheus.Registry) func() {
	observe := promlimit.Observe(registry)
	limiter := limit.New(nil, &limit.Options{Observe: observe})
	promlimit.Watch(registry, limiter)
	var handlers []http.Handler
	for name, rules := range map[string]string{
		"refuses": "3/1h global",
		"marks":   "m: 1/1h global refuse mark",
		"shadows": "old: 3/1h global; new: 1/1h global shadow replaces old",
		"waits":   "1/5ms global refuse wait 100ms",
	} {
		policy, err := limiter.Policy(limit.Named(name, limit.MustParse(rules).Rules()...))
		require.NoError(t, err)
		handlers = append(handlers, policy.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	}
	reserves, err := limiter.Policy(limit.Named("reserves", limit.Global(time.Hour, 1000)))
	require.NoError(t, err)
	outer, err := limiter.Policy(limit.Named("outer", limit.Global(time.Hour, 1000)))
	require.NoError(t, err)
	inner := limiter.Limit(limit.Named("inner", limit.Global(time.Hour, 1)))
	handlers = append(handlers, outer.Handler(inner(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))))
	return func() {
		for range 20 { // of decisions in memory, the time of one in 16 is measured
			for _, h := range handlers {
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
			}
		}
		_, err := reserves.Take(t.Context(), limit.Request{Settle: true})
		require.NoError(t, err)
		observe(nil, limit.Decision{}, errors.New("undecided"))
	}
}

// TestPanels lets Prometheus's own engine evaluate each panel over metrics that
// promlimit has exported: each has something to show.
func TestPanels(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	decide := traffic(t, registry)
	scraped := make(map[string]*promql.Series)
	start := time.UnixMilli(1_700_000_000_000)
	now := start
	for ; now.Before(start.Add(10 * time.Minute)); now = now.Add(time.Minute) {
		decide()
		families, err := registry.Gather()
		require.NoError(t, err)
		samples, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{Timestamp: model.TimeFromUnixNano(now.UnixNano())}, families...)
		require.NoError(t, err)
		for _, sample := range samples {
			series := labels.NewBuilder(labels.FromStrings("job", "api", "instance", "a"))
			for name, value := range sample.Metric {
				series.Set(string(name), string(value))
			}
			key := series.Labels().String()
			if scraped[key] == nil {
				scraped[key] = &promql.Series{Metric: series.Labels()}
			}
			scraped[key].Floats = append(scraped[key].Floats, promql.FPoint{T: int64(sample.Timestamp), F: float64(sample.Value)})
		}
	}
	held := &storage.MockQueryable{MockQuerier: &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		var found seriesSet
		for _, series := range scraped {
			if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(series.Metric.Get(m.Name)) }) {
				found = append(found, promql.NewStorageSeries(*series))
			}
		}
		return &setIterator{seriesSet: found, at: -1}
	}}}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1_000_000, Timeout: time.Minute, Parser: promQL})
	text, err := os.ReadFile("../../ops/deploy/grafana-dashboard.json")
	require.NoError(t, err)
	var dashboard struct{ Panels []panel }
	require.NoError(t, json.Unmarshal(text, &dashboard))
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			expr := strings.NewReplacer("$__rate_interval", "5m", `=~"$policy"`, `=~".*"`).Replace(target.Expr)
			query, err := engine.NewInstantQuery(t.Context(), held, nil, expr, now.Add(-time.Minute))
			require.NoError(t, err, p.Title)
			result := query.Exec(t.Context())
			require.NoError(t, result.Err, p.Title)
			vector, err := result.Vector()
			require.NoError(t, err, p.Title)
			numbers := 0
			for _, sample := range vector {
				if !math.IsNaN(sample.F) {
					numbers++
				}
			}
			assert.Positive(t, numbers, "%s shows nothing: %s", p.Title, expr)
			query.Close()
		}
	}
}

// A seriesSet is what a query selects. Prometheus's own storage needs hundreds of modules.
type seriesSet []storage.Series

type setIterator struct {
	seriesSet
	at int
}

func (s *setIterator) Next() bool                        { s.at++; return s.at < len(s.seriesSet) }
func (s *setIterator) At() storage.Series                { return s.seriesSet[s.at] }
func (s *setIterator) Err() error                        { return nil }
func (s *setIterator) Warnings() annotations.Annotations { return nil }

// Package deploy_test checks the files for operators with Prometheus's own parser, against
// the table of metrics. It is a module of its own, outside go.work, since no user of the
// library needs that parser.
package deploy_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/telemetry"
)

// Labels that Prometheus adds to what it scrapes.
var scraped = []string{"job", "instance"}

var promQL = parser.NewParser(parser.Options{})

// find returns the metric that a series belongs to, and the labels that it has.
func find(series string) (m *telemetry.Metric, names []string) {
	for _, m := range slices.Concat(telemetry.OfDecisions, telemetry.OfLimiters) {
		names := slices.Concat(m.Labels, scraped)
		switch {
		case m.Kind != telemetry.Histogram:
			if series == m.Prom {
				return m, names
			}
		case series == m.Prom+"_bucket":
			return m, append(names, "le")
		case series == m.Prom+"_sum" || series == m.Prom+"_count":
			return m, names
		}
	}
	return nil, nil
}

// check returns what is wrong with an expression: its syntax, a metric or label that does
// not exist, or a value that the label never has.
func check(expr string) (problems []string, used []*telemetry.Metric) {
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	parsed, err := promQL.ParseExpr(expr)
	if err != nil {
		return []string{err.Error()}, nil
	}
	var known []string // labels of the metrics
	parser.Inspect(parsed, func(node parser.Node, path []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		m, names := find(selector.Name)
		if m == nil {
			add("no metric %s", selector.Name)
			return nil
		}
		used, known = append(used, m), append(known, names...)
		counts := m.Kind != telemetry.Gauge
		if _, ranged := path[len(path)-1].(*parser.MatrixSelector); !ranged && counts && m.Labels != nil {
			add("%s is a counter without rate or increase", selector.Name)
		}
		for _, matcher := range selector.LabelMatchers {
			if matcher.Name != model.MetricNameLabel {
				problems = append(problems, checkMatcher(m, names, matcher)...)
			}
		}
		return nil
	})
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		if by, ok := node.(*parser.AggregateExpr); ok {
			for _, name := range by.Grouping {
				if !slices.Contains(known, name) {
					add("no metric has the label %s", name)
				}
			}
		}
		return nil
	})
	return problems, used
}

func checkMatcher(m *telemetry.Metric, names []string, matcher *labels.Matcher) (problems []string) {
	if !slices.Contains(names, matcher.Name) {
		return []string{fmt.Sprintf("%s has no label %s", m.Prom, matcher.Name)}
	}
	for _, value := range strings.Split(matcher.Value, "|") {
		if values := telemetry.Values[matcher.Name]; values != nil && !slices.Contains(values, value) {
			problems = append(problems, fmt.Sprintf("%s is never %s", matcher.Name, value))
		}
		if matcher.Name == "le" && !slices.ContainsFunc(m.Bounds, func(b float64) bool { return fmt.Sprint(b) == value }) {
			problems = append(problems, fmt.Sprintf("%s has no bucket %s", m.Prom, value))
		}
	}
	return problems
}

// TestCheck finds what is wrong with expressions that are wrong.
func TestCheck(t *testing.T) {
	for expr, problem := range map[string]string{
		`sum(rate(rate_limiting_requests_total[5m])`:                           "unclosed",
		`sum(rate(rate_limiting_request_total[5m]))`:                           "no metric",
		`sum(rate(rate_limiting_decision_duration_seconds[5m]))`:               "no metric",
		`rate(rate_limiting_requests_total{rule="r"}[5m])`:                     "no label",
		`rate(rate_limiting_requests_total{mode=~"exact|lokal"}[5m])`:          "never lokal",
		`sum by (verdict) (rate(rate_limiting_requests_total[5m]))`:            "no metric has the label",
		`sum(rate_limiting_requests_total)`:                                    "without rate",
		`rate(rate_limiting_rule_used_ratio_bucket{le="0.85"}[5m])`:            "no bucket",
		`histogram_quantile(0.5, rate(rate_limiting_waiters{policy="p"}[5m]))`: "no label",
	} {
		problems, _ := check(expr)
		assert.Contains(t, strings.Join(problems, "\n"), problem, expr)
	}
}

// TestAlerts reads the alert rules as Prometheus does.
func TestAlerts(t *testing.T) {
	text, err := os.ReadFile("../../ops/deploy/prometheus-alerts.yml")
	require.NoError(t, err)
	groups, errs := rulefmt.Parse(text, false, model.UTF8Validation, promQL, slog.New(slog.DiscardHandler))
	require.Empty(t, errs)
	guide, err := os.ReadFile("../../docs/dashboards.md")
	require.NoError(t, err)
	alerts := 0
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			problems, used := check(rule.Expr)
			assert.Empty(t, problems, rule.Alert)
			assert.NotEmpty(t, used, rule.Alert)
			assert.NotEmpty(t, rule.Annotations["summary"], rule.Alert)
			assert.NotEmpty(t, rule.Annotations["description"], rule.Alert)
			assert.Contains(t, string(guide), "| `"+rule.Alert+"` |")
			for _, name := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(rule.Annotations["summary"], -1) {
				assert.Regexp(t, `by \([^)]*\b`+name[1]+`\b`, rule.Expr, rule.Alert)
			}
			alerts++
		}
	}
	assert.GreaterOrEqual(t, alerts, 10)
}

// A panel is what the test reads of a panel of Grafana.
type panel struct {
	ID          int
	Title, Type string
	GridPos     struct{ X, Y, W, H int }
	Targets     []struct{ Expr, LegendFormat string }
}

// TestDashboard parses the expression of each panel. Every metric is in one of them.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("../../ops/deploy/grafana-dashboard.json")
	require.NoError(t, err)
	var dashboard struct{ Panels []panel }
	require.NoError(t, json.Unmarshal(text, &dashboard))
	shown := make(map[*telemetry.Metric]bool)
	ids := make(map[int]bool)
	for i, p := range dashboard.Panels {
		assert.False(t, ids[p.ID], "two panels have the id %d", p.ID)
		ids[p.ID] = true
		assert.True(t, p.GridPos.W > 0 && p.GridPos.X+p.GridPos.W <= 24, p.Title)
		for _, other := range dashboard.Panels[:i] {
			a, b := p.GridPos, other.GridPos
			assert.False(t, a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H, "%s covers %s", p.Title, other.Title)
		}
		if p.Type == "row" {
			continue
		}
		assert.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			expr := strings.NewReplacer("$__rate_interval", "5m", `=~"$policy"`, `=~".*"`).Replace(target.Expr)
			problems, used := check(expr)
			assert.Empty(t, problems, "%s: %s", p.Title, target.Expr)
			for _, m := range used {
				shown[m] = true
			}
			for _, name := range regexp.MustCompile(`{{(\w+)}}`).FindAllStringSubmatch(target.LegendFormat, -1) {
				assert.Regexp(t, `by \([^)]*\b`+name[1]+`\b`, expr, p.Title)
			}
		}
	}
	for _, m := range slices.Concat(telemetry.OfDecisions, telemetry.OfLimiters) {
		assert.True(t, shown[m], "no panel shows %s", m.Prom)
	}
}

package otellimit_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/ops/metrics/otellimit"
)

// A recording provider notes the instruments that it makes, with their units.
type recording struct {
	noop.MeterProvider
	instruments map[string]string
}

func (r *recording) Meter(string, ...metric.MeterOption) metric.Meter { return recordingMeter{of: r} }

type recordingMeter struct {
	noop.Meter
	of *recording
}

func (m recordingMeter) Int64ObservableCounter(name string, options ...metric.Int64ObservableCounterOption) (metric.Int64ObservableCounter, error) {
	config := metric.NewInt64ObservableCounterConfig(options...)
	m.of.instruments[name] = "counter, " + config.Unit()
	return m.Meter.Int64ObservableCounter(name, options...)
}

func (m recordingMeter) Int64ObservableGauge(name string, options ...metric.Int64ObservableGaugeOption) (metric.Int64ObservableGauge, error) {
	config := metric.NewInt64ObservableGaugeConfig(options...)
	m.of.instruments[name] = "gauge, " + config.Unit()
	return m.Meter.Int64ObservableGauge(name, options...)
}

func (m recordingMeter) Float64Histogram(name string, options ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	config := metric.NewFloat64HistogramConfig(options...)
	m.of.instruments[name] = "histogram, " + config.Unit()
	return m.Meter.Float64Histogram(name, options...)
}

// TestTable compares the instruments that are made with those of docs/metrics.md.
func TestTable(t *testing.T) {
	page := must.Get(os.ReadFile("../../../docs/metrics.md"))(t)
	units := map[string]string{"requests": "{request}", "stores": "{store}", "outages": "{outage}", "holds": "{hold}", "units": "{unit}", "seconds": "s", "0 to 1": "1"}
	documented := make(map[string]string)
	for _, row := range regexp.MustCompile("(?m)^\\| `rate_limiting_\\w+` \\| `([^`]+)` \\| (\\w+), ([^|]+) \\|").FindAllStringSubmatch(string(page), -1) {
		documented[row[1]] = row[2] + ", " + units[row[3]]
	}
	r := &recording{instruments: make(map[string]string)}
	observe := must.Get(otellimit.Observe(r))(t)
	require.NoError(t, otellimit.Watch(r, limit.New(nil, &limit.Options{Observe: observe})))
	assert.Equal(t, documented, r.instruments)
}

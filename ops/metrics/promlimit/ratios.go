package promlimit

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/routelimit/limit/internal/telemetry"
)

// Ratios are the histograms of a metric with two labels. A [prometheus.HistogramVec]
// takes longer for each value.
type ratios struct {
	metric *telemetry.Metric
	desc   *prometheus.Desc
	mu     sync.Mutex
	of     map[[2]string]*telemetry.Buckets // by the values of the labels
}

func newRatios(m *telemetry.Metric) *ratios {
	return &ratios{metric: m, desc: prometheus.NewDesc(m.Prom, m.Help, m.Labels, nil), of: make(map[[2]string]*telemetry.Buckets)}
}

func (r *ratios) with(values [2]string) *telemetry.Buckets {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of[values] == nil {
		r.of[values] = telemetry.NewBuckets(r.metric)
	}
	return r.of[values]
}

func (r *ratios) Describe(to chan<- *prometheus.Desc) { to <- r.desc }

func (r *ratios) Collect(to chan<- prometheus.Metric) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for values, buckets := range r.of {
		count, sum, upTo := buckets.Snapshot()
		to <- prometheus.MustNewConstHistogram(r.desc, count, sum, upTo, values[:]...)
	}
}

package main

import (
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestMetrics sends the requests that docs/observing.md describes.
func TestMetrics(t *testing.T) {
	h := newHandler()
	get := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w
	}
	for range 5 {
		assert.Equal(t, 200, get("/items").Code)
	}
	assert.Equal(t, 429, get("/items").Code)
	metrics := get("/metrics").Body.String()
	assert.Contains(t, metrics, `rate_limiting_requests_total{mode="exact",policy="GET /items",result="admitted"} 5`)
	assert.Contains(t, metrics, `rate_limiting_requests_total{mode="exact",policy="GET /items",result="refused"} 1`)
	assert.Contains(t, metrics, "rate_limiting_waiters 0")
}

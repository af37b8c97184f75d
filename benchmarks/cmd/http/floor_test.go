package main

import (
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit"
)

// TestFloor compares what the floor and limit answer: a floor that does less says nothing.
func TestFloor(t *testing.T) {
	global := quota{"global-10ms", 20_000, 10 * time.Millisecond}
	for _, perIP := range []quota{{"per-ip-10ms", 20_000, 10 * time.Millisecond}, {"per-ip-1h", 1, time.Hour}} {
		synctest.Test(t, func(t *testing.T) { // no window passes meanwhile
			byHand := muxWith(byHand(perIP, global))
			limited := netHTTP(limit.Rules(limit.PerIP(perIP.window, perIP.limit), limit.Global(global.window, global.limit)))
			r := requests(1)[0]
			for range 2 {
				floor, of := httptest.NewRecorder(), httptest.NewRecorder()
				byHand.ServeHTTP(floor, r)
				limited.ServeHTTP(of, r)
				assert.Equal(t, of.Code, floor.Code)
				assert.Equal(t, of.Header(), floor.Header())
				assert.Equal(t, of.Body.String(), floor.Body.String())
			}
		})
	}
}

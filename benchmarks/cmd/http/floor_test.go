package main

import (
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestFloor compares what the floor and limit answer: a floor that does less says nothing.
func TestFloor(t *testing.T) {
	servers := groups()[0].servers
	for i, s := range servers {
		if s.name != "floor, written by hand" && s.name != "floor, written by hand, refused" {
			continue
		}
		r := requests(1)[0]
		for range 2 {
			floor, of := httptest.NewRecorder(), httptest.NewRecorder()
			s.handler.ServeHTTP(floor, r)
			servers[i+1].handler.ServeHTTP(of, r)
			assert.Equal(t, of.Code, floor.Code)
			assert.Equal(t, of.Header(), floor.Header())
			assert.Equal(t, of.Body.String(), floor.Body.String())
		}
	}
}

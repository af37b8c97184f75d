package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestFloor holds that the floor decides: one that does less says nothing.
func TestFloor(t *testing.T) {
	for rules := 1; rules <= 2; rules++ {
		decide := byHand(rules)(load{each: quota{100, time.Hour}})()
		for i := range 200 {
			assert.Equal(t, i < 100, decide("a"), i)
		}
		assert.True(t, decide("b"))
	}
}

package report

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit/cmd/limitctl/internal/words"
	"github.com/routelimit/limit/cmd/limitctl/replay"
)

func TestPercent(t *testing.T) {
	assert.Equal(t, []string{"–", "0%", "100%", "<0.1%", ">99.9%", "33.3%"},
		[]string{words.Percent(0, 0), words.Percent(0, 5), words.Percent(5, 5), words.Percent(1, 1e6), words.Percent(1e6-1, 1e6), words.Percent(1, 3)})
}

func TestColumns(t *testing.T) {
	at := func(seconds ...int64) (list []replay.Bucket) {
		for _, s := range seconds {
			list = append(list, replay.Bucket{Start: time.Unix(s, 0).UTC(), Requests: 1, Refused: 1})
		}
		return list
	}
	list, gaps := columns(at(0, 1, 2, 9), time.Second, 5)
	assert.False(t, gaps)
	assert.Len(t, list, 5)
	assert.Equal(t, column{time.Unix(0, 0).UTC(), 2 * time.Second, 2, 2}, list[0])
	assert.Equal(t, int64(1), list[4].Refused)

	list, gaps = columns(at(0, 1, 2, 1<<31), time.Second, 60)
	assert.True(t, gaps, "a wrong time")
	assert.Len(t, list, 4)
	assert.Equal(t, time.Unix(1<<31, 0).UTC(), list[3].Start)

	list, _ = columns(nil, time.Second, 60)
	assert.Empty(t, list)
}

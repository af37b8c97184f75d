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
	list, width := columns(at(0, 1, 2, 9), time.Second, 5)
	assert.Len(t, list, 5)
	assert.Equal(t, 2*time.Second, width)
	assert.Equal(t, replay.Bucket{Start: time.Unix(0, 0).UTC(), Requests: 2, Refused: 2}, list[0])
	assert.Equal(t, int64(1), list[4].Refused)

	list, _ = columns(at(0, 1, 2, 1<<31), time.Second, 60)
	assert.Len(t, list, 60, "a wrong time")
	assert.Equal(t, []int64{3, 1}, []int64{list[0].Refused, list[59].Refused})
	list, _ = columns(at(7), time.Second, 60)
	assert.Len(t, list, 1)
}

package limit

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestNewcomerInAQueue has 1,000 clients queue on a server and disconnect. A newcomer
// waits for those that are still there: none, or a few.
func TestNewcomerInAQueue(t *testing.T) {
	for _, stay := range []int{0, 3} {
		synctest.Test(t, func(t *testing.T) {
			rule := Rule{Key: Everyone, Limit: 10, Window: time.Second, Algorithm: Queue{Burst: 1000}}
			h := New(nil, nil).Limit(Named("q", rule))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			leaving, leave := context.WithCancel(t.Context())
			var left, others sync.WaitGroup
			for i := range 1001 {
				ctx, group := leaving, &left
				if i > 0 && i <= 2*stay && i%2 == 0 {
					ctx, group = t.Context(), &others
				}
				group.Go(func() { patient(ctx, h, strconv.Itoa(i)) })
				synctest.Wait()
			}
			time.Sleep(150 * time.Millisecond)
			leave()
			left.Wait()
			began := time.Now()
			w, _ := patient(t.Context(), h, "newcomer")
			require.Equal(t, http.StatusOK, w.Code)
			assert.LessOrEqual(t, time.Since(began), time.Duration(stay+1)*100*time.Millisecond)
			others.Wait()
		})
	}
}

package guard

import (
	"sync/atomic"
	"testing"

	"github.com/routelimit/limit/stores/storetest"
)

// TestVersionsAlone has versions of a rule charge a key while the store is away.
func TestVersionsAlone(t *testing.T) {
	now := new(atomic.Int64)
	s, f := guarded(1, now)
	f.fail(errDown)
	storetest.Versions(t, storetest.Harness{Store: s, SetTime: now.Store}, 1, 300)
	storetest.Algorithms(t, storetest.Harness{Store: s, SetTime: now.Store}, 1, 300)
}

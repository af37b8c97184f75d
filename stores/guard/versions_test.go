package guard

import (
	"testing"

	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/stores/storetest"
)

// TestVersionsAlone has versions of a rule charge a key while the store is away.
func TestVersionsAlone(t *testing.T) {
	race.Skip(t)
	s, f, now := guarded(1, 0)
	f.fail(errDown)
	storetest.Versions(t, storetest.Harness{Store: s, SetTime: now.Store}, false, 1, 300)
	storetest.Versions(t, storetest.Harness{Store: s, SetTime: now.Store}, true, 1, 300)
}

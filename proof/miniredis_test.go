package proof

import (
	"os"
	"os/exec"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/redistest"
)

// TestMiniredis runs the tests of redisstore on miniredis, which tests of users rely on:
// the script must do there what it does on Redis.
func TestMiniredis(t *testing.T) {
	if os.Getenv(redistest.AddrVar) != "" {
		t.Skip("the tests of redisstore run on it anyway")
	}
	fake := miniredis.RunT(t)
	// Tests of the server, rather than of the script, need a real one.
	test := exec.Command("go", "test", "-count=1", "-short", "-skip=Guarded|Spread|InTime|Flushed|Lost|EveryByte|Swapped|Duplicated|NoState|Secret", "./redisstore")
	test.Dir = ".."
	test.Env = append(os.Environ(), redistest.AddrVar+"="+fake.Addr(), "LIMIT_SCHEDULES=100") // it is slow
	out, err := test.CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Logf("%s", out)
}

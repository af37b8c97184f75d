package proof

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/internal/redistest"
)

// TestDemoUnderLoad runs wrk against the routes of the demo from one address. It admits
// exactly what 5 requests in 2 s allow.
func TestDemoUnderLoad(t *testing.T) {
	if os.Getenv("LIMIT_PROOF_SECONDS") == "" {
		t.Skip("runs wrk for LIMIT_PROOF_SECONDS, which is not set")
	}
	wrk, err := exec.LookPath("wrk")
	if err != nil {
		t.Skip(err)
	}
	limitctl := buildLimitctl(t)
	length := min(proofTime(2*time.Second), 20*time.Second)
	for _, store := range []string{"memory", "redis"} {
		args := []string{"demo", "--addr", "127.0.0.1:0"}
		if store == "redis" {
			args = append(args, "--redis", "redis://"+redistest.Real(t).Options().Addr)
		}
		base := startDemo(t, exec.Command(limitctl, args...))
		for _, framework := range []string{"gin", "echo", "http"} {
			t.Run(store+"/"+framework, func(t *testing.T) {
				url := base + "/" + framework + "/update"
				out, err := exec.Command(wrk, "-t2", "-c32", fmt.Sprintf("-d%ds", int(length.Seconds())),
					"-s", "testdata/status.lua", url).Output()
				require.NoError(t, err, "%s", out)
				var admitted, refused, other, failed int
				_, counts, found := strings.Cut(string(out), "COUNTED ")
				require.True(t, found, "%s", out)
				must.Get(fmt.Sscan(counts, &admitted, &refused, &other, &failed))(t)
				t.Logf("%v: %d admitted, %d refused, %d others, %d failed", length, admitted, refused, other, failed)
				windows := int(length / (2 * time.Second))
				assert.GreaterOrEqual(t, admitted, 5*windows)
				assert.LessOrEqual(t, admitted, 5*(windows+1), "wrk goes on for a moment")
				assert.Greater(t, refused, 1000)
				assert.Zero(t, other+failed)
			})
		}
	}
}

// buildLimitctl builds the command once for all tests, and returns its path.
func buildLimitctl(t *testing.T) string {
	t.Helper()
	limitctl := filepath.Join(built, "limitctl")
	if _, err := os.Stat(limitctl); err == nil {
		return limitctl
	}
	out, err := race.Build("../cmd/limitctl", limitctl).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return limitctl
}

// startDemo starts a demo on a free port and returns its address.
func startDemo(t *testing.T, demo *exec.Cmd) string {
	t.Helper()
	out := must.Get(demo.StdoutPipe())(t)
	demo.Stderr = os.Stderr
	require.NoError(t, demo.Start())
	t.Cleanup(func() {
		assert.NoError(t, demo.Process.Signal(os.Interrupt))
		assert.NoError(t, demo.Wait())
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if _, after, found := strings.Cut(lines.Text(), "http://"); found {
			host, _, _ := strings.Cut(after, ",")
			go io.Copy(io.Discard, out)
			base := "http://" + host
			response := must.Get(http.Get(base + "/"))(t)
			response.Body.Close()
			return base
		}
	}
	t.Fatal("the demo does not say where it is")
	return ""
}

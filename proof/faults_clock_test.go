package proof

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/must"
)

// preloadClock makes the servers that the test starts afterwards read their wall clock
// with an offset, which is in a file.
func preloadClock(t *testing.T) *os.File {
	compiler, err := exec.LookPath("cc")
	if err != nil || runtime.GOOS != "linux" {
		t.Skip("needs Linux and a C compiler to move the clock of Redis: ", err)
	}
	library := filepath.Join(t.TempDir(), "clock.so")
	out, err := exec.Command(compiler, "-shared", "-fPIC", "-o", library, "testdata/clock.c", "-ldl").CombinedOutput()
	require.NoError(t, err, "%s", out)
	file := must.Get(os.Create(filepath.Join(t.TempDir(), "offset")))(t)
	t.Cleanup(func() { file.Close() })
	must.Get(file.Write(make([]byte, 8)))(t)
	t.Setenv("LD_PRELOAD", library)
	t.Setenv("LIMIT_CLOCK", file.Name())
	return file
}

// shift moves the clock of the server, and leaves it there.
func shift(by time.Duration) func(*setup) func() {
	return func(b *setup) func() {
		before := b.admin.Time(b.t.Context()).Val()
		offset := binary.NativeEndian.AppendUint64(nil, uint64(by.Microseconds()))
		must.Get(b.clock.WriteAt(offset, 0))(b.t)
		moved := b.admin.Time(b.t.Context()).Val().Sub(before)
		require.InDelta(b.t, by.Seconds(), moved.Seconds(), 60, "the clock of Redis moves")
		return func() {}
	}
}

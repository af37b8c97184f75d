package access_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/logbook"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/ops/access"
)

// A watched is a file that a list follows.
type watched struct {
	*testing.T
	path string
	list *access.List
	log  logbook.Book
}

func watch(t *testing.T, path string) *watched {
	t.Helper()
	w := &watched{T: t, path: path}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	w.list = must.Get(access.Watch(ctx, path, &access.Options{Log: w.log.Log()}))(t)
	return w
}

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// lists requires the list to be one of an address after two looks at the file, and
// that the log has lines.
func (w *watched) lists(address string, logged ...string) {
	w.Helper()
	time.Sleep(1100 * time.Millisecond)
	synctest.Wait()
	for _, a := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"} {
		assert.Equal(w, a == address, w.list.Matches(client(from(a+":80"))), a)
	}
	lines := w.log.Lines()
	require.Len(w, lines, len(logged), lines)
	for i := range logged {
		assert.Contains(w, lines[i], logged[i])
	}
}

const changed = `level=INFO msg="access: a list has changed" path=`

func TestWatch(t *testing.T) {
	for name, test := range map[string]func(*watched){
		"written": func(w *watched) {
			write(w.T, w.path, "10.0.0.2 # another size\n")
			w.lists("10.0.0.2", changed+w.path)
			w.lists("10.0.0.2")
		},
		"renamed": func(w *watched) {
			write(w.T, w.path+"~", "10.0.0.2\n")
			require.NoError(w, os.Rename(w.path+"~", w.path))
			w.lists("10.0.0.2", changed)
			// as some editors do: the old file moves away, and a new one comes.
			require.NoError(w, os.Rename(w.path, w.path+"~"))
			w.lists("10.0.0.2", "no such file or directory")
			write(w.T, w.path, "10.0.0.3\n")
			w.lists("10.0.0.3", changed)
		},
		"half written": func(w *watched) {
			f, err := os.Create(w.path) // which truncates it
			require.NoError(w, err)
			w.lists("10.0.0.1", "the file is empty, and may be half written: for an empty list, write a comment")
			for _, part := range []string{"10.0.0.2\n10.", "0.0.", "3\n"} {
				must.Get(f.WriteString(part))(w)
				if part != "3\n" {
					time.Sleep(600 * time.Millisecond) // it is never the same at two looks
				}
			}
			require.NoError(w, f.Close())
			time.Sleep(1100 * time.Millisecond)
			assert.True(w, w.list.Matches(client(from("10.0.0.2:80"))))
			assert.True(w, w.list.Matches(client(from("10.0.0.3:80"))))
			assert.Len(w, w.log.Lines(), 1)
			write(w.T, w.path, "10.0.0.1\n10.0.0.0/1") // of /16
			time.Sleep(1100 * time.Millisecond)
			assert.Contains(w, w.log.Lines()[0], "line 2 has no line feed, so the file may be half written")
			assert.False(w, w.list.Matches(client(from("10.0.0.1:80"))))
			write(w.T, w.path, "# nobody\n")
			w.lists("", changed)
		},
		"invalid": func(w *watched) {
			write(w.T, w.path, "10.0.0.2\n10.0.0.3/33\n")
			w.lists("10.0.0.1", `list could not be read: the one read before stays in force" code=LIMIT-405 path=`+w.path+` error="`+w.path+`: access: line 2, column 1: not a prefix`)
			w.lists("10.0.0.1") // and logged once
			require.NoError(w, os.Remove(w.path))
			w.lists("10.0.0.1", "no such file or directory")
			require.NoError(w, os.Mkdir(w.path, 0o700))
			w.lists("10.0.0.1", "is not a regular file")
			require.NoError(w, os.Remove(w.path))
			write(w.T, w.path, "10.0.0.2\n")
			w.lists("10.0.0.2", changed)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "list")
				write(t, path, "10.0.0.1\n")
				w := watch(t, path)
				w.lists("10.0.0.1")
				test(w)
			})
		})
	}
}

// TestWatchEnds checks that nothing follows the file when the context has ended.
func TestWatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "list")
		write(t, path, "10.0.0.1\n")
		ctx, cancel := context.WithCancel(t.Context())
		l := must.Get(access.Watch(ctx, path, nil))(t)
		cancel()
		synctest.Wait()
		write(t, path, "10.0.0.2 # another size\n")
		time.Sleep(time.Minute)
		assert.True(t, l.Matches(client(from("10.0.0.1:80"))))
	})
}

// TestWatchFirst checks that the file must be valid at first.
func TestWatchFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "list")
	_, err := access.Watch(t.Context(), path, nil)
	assert.ErrorContains(t, err, "access: open "+path+": no such file")
	_, err = access.Watch(t.Context(), filepath.Dir(path), nil)
	assert.ErrorContains(t, err, "is not a regular file")
	write(t, path, "10.0.0.1\n10.0.0.2/33\n")
	_, err = access.Watch(t.Context(), path, nil)
	assert.ErrorContains(t, err, path+": access: line 2, column 1: not a prefix")
}

// TestWatchConcurrently matches requests while the list changes: each sees one list.
func TestWatchConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "list")
		write(t, path, "10.0.0.1\n")
		w := watch(t, path)
		done := make(chan struct{})
		var asking sync.WaitGroup
		for range 4 {
			asking.Go(func() {
				for ended := false; !ended; {
					select {
					case <-done:
						ended = true
					case <-time.After(10 * time.Millisecond):
						w.list.Matches(client(from("10.0.0.1:80", "User-Agent", "Bot")))
					}
				}
			})
		}
		for i := range 10 {
			write(t, path, strings.Repeat("10.0.0.2\n", i+2))
			time.Sleep(2 * time.Second)
		}
		close(done)
		asking.Wait()
		w.log.Lines()
		w.lists("10.0.0.2")
	})
}

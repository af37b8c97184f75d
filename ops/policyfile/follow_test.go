package policyfile_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/logbook"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/ops/policyfile"
)

var ok = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })

func user(r *http.Request) string { return r.Header.Get("X-User") }

// A program follows a file, and serves.
type program struct {
	testing.TB
	path     string
	policies *policyfile.Policies
	limiter  *limit.Limiter
	handler  http.Handler
	log      logbook.Book
}

func write(t testing.TB, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// start writes a file if there is a text, and follows it.
func start(t testing.TB, path, text string, declare func(*limit.Limiter)) *program {
	t.Helper()
	p := &program{TB: t, path: path}
	if text != "" {
		write(t, path, text)
	}
	p.policies = must.Get(policyfile.Open(path, &policyfile.Options{Log: p.log.Log()}))(t)
	p.limiter = limit.New(nil, &limit.Options{Caller: limit.Caller[*http.Request]{User: user}, Exempt: p.policies.Exempt, Bar: p.policies.Bar})
	if declare != nil {
		declare(p.limiter)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	require.NoError(t, p.policies.Follow(ctx, p.limiter))
	p.handler = p.policies.Handler(ok)
	return p
}

// send sends a request from an address. It returns the status and RateLimit-Policy.
func (p *program) send(method, path, address string) (int, string) {
	r := httptest.NewRequest(method, "/", nil)
	r.URL.Path = path
	r.RemoteAddr = address + ":80"
	w := httptest.NewRecorder()
	p.handler.ServeHTTP(w, r)
	return w.Code, w.Header().Get("RateLimit-Policy")
}

// limits requires the policy of POST /login to have a limit, and 0 to have none, after
// two looks at the file.
func (p *program) limits(n int) {
	p.Helper()
	time.Sleep(1100 * time.Millisecond)
	synctest.Wait()
	_, header := p.send("POST", "/login", "192.0.2.1")
	want := ""
	if n > 0 {
		want = fmt.Sprintf(`"per-ip-1m";q=%d;w=60`, n)
	}
	assert.Equal(p, want, header)
}

func login(n int) string {
	return "version: 1\npolicies:\n  login: {routes: [POST /login], rules: " + strconv.Itoa(n) + "/1m per ip}\n"
}

func TestFollow(t *testing.T) {
	for name, test := range map[string]func(*program){
		"written": func(p *program) {
			write(p, p.path, login(6))
			p.limits(6)
		},
		"renamed": func(p *program) {
			write(p, p.path+"~", login(6))
			require.NoError(p, os.Rename(p.path+"~", p.path))
			p.limits(6)
			require.NoError(p, os.Rename(p.path, p.path+"~"))
			p.limits(6)
			assert.ErrorIs(p, p.policies.Status().Err, os.ErrNotExist)
			write(p, p.path, login(7))
			p.limits(7)
			assert.NoError(p, p.policies.Status().Err)
		},
		"half written": func(p *program) {
			f, err := os.Create(p.path) // which truncates it
			require.NoError(p, err)
			p.limits(5)
			text := login(60)
			for i := 0; i < len(text); i += 9 {
				must.Get(f.WriteString(text[i:min(i+9, len(text))]))(p)
				if i+9 < len(text) {
					time.Sleep(600 * time.Millisecond) // it is never the same at two looks
					_, header := p.send("POST", "/login", "192.0.2.1")
					assert.Contains(p, header, "q=5;")
				}
			}
			p.limits(60)
		},
		"removed policy": func(p *program) {
			write(p, p.path, "version: 1\npolicies: none\n")
			p.limits(0)
			write(p, p.path, login(6))
			p.limits(6)
			write(p, p.path, "version: 1\npolicies:\n  login: {rules: 9/1m per ip}\n")
			p.limits(0)
		},
		"lists": func(p *program) {
			write(p, p.path, "exempt: [192.0.2.1]\nbarred: [192.0.2.0/24]\n"+login(6))
			p.limits(0)
			status, _ := p.send("POST", "/login", "192.0.2.9")
			assert.Equal(p, http.StatusForbidden, status)
			status, _ = p.send("GET", "/other", "192.0.2.9")
			assert.Equal(p, http.StatusOK, status, "no policy is on the route")
		},
		"spent state": func(p *program) {
			for range 4 {
				p.send("POST", "/login", "192.0.2.7")
			}
			write(p, p.path, login(4))
			p.limits(4)
			status, _ := p.send("POST", "/login", "192.0.2.7")
			assert.Equal(p, http.StatusTooManyRequests, status, "the four are remembered")
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				p := start(t, filepath.Join(dir, "policy.yaml"), login(5), nil)
				p.limits(5)
				test(p)
			})
		})
	}
}

// TestConfigMap follows a file as Kubernetes mounts it: file → ..data/file, and ..data →
// a folder, a link that is replaced by a rename.
func TestConfigMap(t *testing.T) {
	dir := t.TempDir()
	version := func(n int) {
		folder := fmt.Sprintf("..v%d", n)
		require.NoError(t, os.Mkdir(filepath.Join(dir, folder), 0o700))
		write(t, filepath.Join(dir, folder, "policy.yaml"), login(n))
		require.NoError(t, os.Symlink(folder, filepath.Join(dir, "..data_tmp")))
		require.NoError(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	}
	version(5)
	require.NoError(t, os.Symlink("..data/policy.yaml", filepath.Join(dir, "policy.yaml")))
	synctest.Test(t, func(t *testing.T) {
		p := start(t, filepath.Join(dir, "policy.yaml"), "", nil)
		p.limits(5)
		for n := 6; n < 10; n++ {
			version(n)
			require.NoError(t, os.RemoveAll(filepath.Join(dir, fmt.Sprintf("..v%d", n-1))))
			p.limits(n)
		}
	})
}

// TestFileComesBack checks that a file which is away for a moment, or has another kind of file in its place, is no
// longer a problem once it is back, and that it is logged again when it is away again.
func TestFileComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "a.yaml")
		p := start(t, path, "version: 1\npolicies:\n  login: {routes: [POST /login], rules: 5/1m per ip}\n", nil)
		time.Sleep(100 * time.Millisecond) // apart from the looks
		for times := range 2 {
			require.NoError(t, os.Rename(path, path+".away"))
			time.Sleep(2 * time.Second)
			assert.ErrorIs(t, p.policies.Status().Err, os.ErrNotExist)
			require.NoError(t, os.Rename(path+".away", path))
			time.Sleep(2 * time.Second)
			assert.NoError(t, p.policies.Status().Err)

			require.NoError(t, os.Rename(path, path+".away"))
			require.NoError(t, os.Mkdir(path, 0o700))
			time.Sleep(2 * time.Second)
			assert.ErrorContains(t, p.policies.Status().Err, "is not a regular file")
			require.NoError(t, os.Remove(path))
			require.NoError(t, os.Rename(path+".away", path))
			time.Sleep(2 * time.Second)
			assert.NoError(t, p.policies.Status().Err)
			assert.Equal(t, times+1, strings.Count(p.log.String(), "no such file"))
		}
	})
}

// TestBrokenHold puts each broken file in the place of a valid one, while the limiter
// decides: the old policy holds every time, and the log names line and column.
func TestBrokenHold(t *testing.T) {
	dir := t.TempDir()
	files := brokenFiles(t)
	synctest.Test(t, func(t *testing.T) {
		held := make(map[string]*program)
		for _, ext := range []string{".yaml", ".json"} {
			path := filepath.Join(dir, "policy"+ext)
			text := map[string]string{".yaml": login(5), ".json": `{"version": 1, "policies": {"login": {"routes": ["POST /login"], "rules": "5/1m per ip"}}}`}[ext]
			held[ext] = start(t, path, text, nil)
		}
		tested, most := 0, 0
		for _, file := range files {
			p := held[filepath.Ext(file)]
			if p == nil {
				continue
			}
			data := must.Get(os.ReadFile(file))(t)
			p.log.Lines() // are read
			write(t, p.path, string(data))
			p.limits(5)
			var wrong *policyfile.Error
			require.ErrorAs(t, p.policies.Status().Err, &wrong, file)
			assert.Equal(t, p.path, wrong.File)
			lines := p.log.Lines()
			require.NotEmpty(t, lines, file)
			lines = slices.DeleteFunc(lines, func(line string) bool { return !strings.Contains(line, "code=LIMIT-206") })
			mistakes := list(list(p.policies.Status().Err)[0]) // of the file on disk
			require.Len(t, lines, min(len(mistakes), 10), "%s: a line for each mistake, and at most ten", file)
			for i, line := range lines {
				require.ErrorAs(t, mistakes[i], &wrong, file)
				assert.Contains(t, line, fmt.Sprintf("%s:%d:%d: ", p.path, wrong.Line, wrong.Column), file)
				assert.NotContains(t, line, `\n\t`, "%s: the log has no excerpts of the file", file)
			}
			most = max(most, len(mistakes))
			tested++
		}
		assert.GreaterOrEqual(t, tested, 50)
		assert.Greater(t, most, 10, "mistakes of a file")
		t.Logf("%d broken files: the old policy held every time", tested)
		for _, p := range held {
			assert.NotNil(t, p.policies.Status().Err)
		}
		write(t, held[".yaml"].path, login(9))
		held[".yaml"].limits(9)
	})
}

// TestSilence checks that a silenced error is still in the status.
func TestSilence(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, login(5))
	synctest.Test(t, func(t *testing.T) {
		var log logbook.Book
		p := must.Get(policyfile.Open(path, &policyfile.Options{Log: log.Log(), Silence: []string{"LIMIT-206"}}))(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		require.NoError(t, p.Follow(ctx, limit.New(nil, nil)))
		log.Lines() // are read
		write(t, path, "x\n")
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		assert.ErrorContains(t, p.Status().Err, ":1:1: ")
		assert.Empty(t, log.Lines())
	})
}

// TestOverride changes policies that code declares.
func TestOverride(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	synctest.Test(t, func(t *testing.T) {
		var code http.Handler
		p := start(t, path, "version: 1\npolicies:\n  login: {rules: 6/1m per ip}\n", func(l *limit.Limiter) {
			code = l.Limit(limit.Named("login", limit.PerIP(time.Minute, 5)).Overridable())(ok)
			l.Limit(limit.Named("fixed", limit.PerIP(time.Minute, 5)))(ok)
		})
		p.handler = code
		p.limits(6)
		write(t, path, "version: 1\npolicies: none\n")
		p.limits(5)
		write(t, path, "version: 1\npolicies:\n  login: {rules: 7/1m per ip}\n  fixed: {rules: 8/1m per ip}\n")
		p.limits(5)
		assert.ErrorContains(t, p.policies.Status().Err, path+":4:3: policy \"fixed\": has other rules in code")
		write(t, path, "version: 1\npolicies:\n  login: {rules: 7/1m per ip, routes: [POST /login]}\n")
		p.limits(7)
		p.handler = p.policies.Handler(ok)
		p.limits(7)
		write(t, path, "version: 1\npolicies: none\n")
		p.limits(0)
		p.handler = code
		p.limits(5)
	})
}

//go:build unix

package mutate

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// limitMemory runs a test binary with at most 8 GiB of address space, since a mutant may
// append in an endless loop.
const limitMemory = `sh -c 'ulimit -v 8388608; exec "$@"' sh`

// judges names the packages that test a folder, if they are not just its own.
var judges = map[string][]string{
	".":                             {".", "./ginlimit", "./echolimit"},
	"core":                          {"./core", "./stores/memstore", "./stores/refusals", "./stores/guard"},
	"lua":                           {"./lua", "./stores/redisstore"},
	"stores/memstore":               {"./stores/memstore", "./stores/guard"},
	"adapter/rpc/grpclimit":         {"./adapter/rpc"},
	"adapter/rpc/connectlimit":      {"./adapter/rpc"},
	"adapter/rpc/internal/flow":     {"./adapter/rpc"},
	"internal/echoflow":             {"./echolimit", "./adapter/echov5limit"},
	"cmd/limitctl/internal/keyscan": {"./cmd/limitctl/internal/doctor", "./cmd/limitctl/internal/live"},
	"internal/decorate":             {"."},
	"internal/door":                 {".", "./ginlimit", "./echolimit"},
	"internal/fields":               {"."},
	"internal/filewatch":            {"./ops/access", "./ops/policyfile"},
	"internal/listeners":            {"."},
	"internal/patterns":             {"./ops/policyfile", "./cmd/limitctl/replay", "./ginlimit"},
	"internal/storecheck":           {".", "./operate"},
	"internal/logbook":              {".", "./stores/guard"},
	"internal/redisfacts":           {"./stores/redisstore", "./cmd/limitctl/internal/doctor"},
}

func judgesOf(folder string) []string {
	if packages := judges[folder]; packages != nil {
		return packages
	}
	return []string{"./" + folder}
}

type verdict string

const (
	caught   verdict = "killed"
	survived verdict = "SURVIVED"
	invalid  verdict = "invalid" // it does not compile
)

// test runs the tests of a mutant, which it writes to the scratch folder.
func (m mutant) test(ctx context.Context, scratch string, timeout time.Duration) (verdict, error) {
	original, err := filepath.Abs(filepath.Join(root, filepath.FromSlash(m.file)))
	if err != nil {
		return "", err
	}
	mutated := filepath.Join(scratch, "mutated"+filepath.Ext(original))
	overlay := filepath.Join(scratch, "overlay.json")
	text, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{original: mutated}})
	err = errors.Join(err, os.WriteFile(mutated, []byte(m.apply(string(text))), 0o600), os.WriteFile(overlay, replace, 0o600))
	if err != nil {
		return "", err
	}
	v, _ := run(ctx, path.Dir(m.file), timeout, "-overlay="+overlay)
	return v, nil
}

// run runs the tests of a folder, and returns what they print too.
func run(ctx context.Context, folder string, timeout time.Duration, flags ...string) (verdict, string) {
	args := []string{"test", "-vet=off", "-failfast", "-short", "-count=1",
		"-timeout=" + timeout.String(), "-exec=" + limitMemory}
	command := exec.CommandContext(ctx, "go", append(append(args, flags...), judgesOf(folder)...)...)
	command.Dir = root
	command.Env = append(os.Environ(), "LIMIT_REQUIRE_REDIS=1") // a skipped test kills nothing
	// A test that ends in a timeout leaves its Redis servers behind, which hold the pipe.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.WaitDelay = time.Second
	out, err := command.CombinedOutput()
	if command.Process != nil {
		_ = command.Cancel()
	}
	switch text := string(out); {
	case err == nil || errors.Is(err, exec.ErrWaitDelay):
		return survived, text
	case strings.Contains(text, "[build failed]") || strings.Contains(text, "[setup failed]"):
		return invalid, text
	default:
		return caught, text
	}
}

package limit_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/must"
)

// TestRequirements checks that the module requires what it is for, and the
// test library, and nothing else: its users get all of it.
func TestRequirements(t *testing.T) {
	text := must.Get(os.ReadFile("go.mod"))(t)
	var direct []string
	block := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasSuffix(line, " ("):
			block = strings.TrimSuffix(line, " (")
			continue
		case line == ")":
			block = ""
			continue
		}
		requirement, single := strings.CutPrefix(line, "require ")
		if (single || block == "require") && requirement != "" && !strings.HasSuffix(requirement, "// indirect") {
			direct = append(direct, requirement)
		}
		assert.False(t, block == "replace" || strings.HasPrefix(line, "replace "), "users do not see a replacement: %s", line)
	}
	assert.Equal(t, []string{
		"github.com/gin-gonic/gin v1.12.0",
		"github.com/labstack/echo/v4 v4.16.0",
		"github.com/redis/go-redis/v9 v9.22.0", // v9.23 needs Go 1.26
		"github.com/stretchr/testify v1.12.1",
	}, direct)
}

const module = "github.com/routelimit/limit"

// The packages that arrows begin or end at.
const (
	std        = "std"
	ginPath    = "github.com/gin-gonic/gin"
	echoPath   = "github.com/labstack/echo"
	goRedis    = "github.com/redis/go-redis"
	testifyLib = "github.com/stretchr/testify"
)

// only lists what a package may be made of, however deep.
var only = []struct {
	from    string
	may     []string
	because string
}{
	{"core", []string{std}, "algorithms are arithmetic: whoever writes a store or a check of one can read them alone"},
	{"lua", []string{std, "core"}, "the codec serves any Redis client"},
	{"internal/fields", []string{std, "core"}, "headers are written from numbers"},
	{"internal/clientip", []string{std}, "addresses are found in headers alone"},
	{"internal/excerpt", []string{std}, "an excerpt is of any text"},
	{"internal/grammar", []string{std, "core", "internal/excerpt", "internal/clientip"}, "the grammar is about text; package rules gives it a meaning"},
	{"rules", []string{std, "core", "internal/grammar", "internal/excerpt", "internal/clientip"}, "a rule is declared without anything that decides by it"},
	{"internal/tags", []string{std, "core", "rules", "internal/grammar", "internal/excerpt", "internal/clientip"}, "tags are read for every router"},
	{"internal/filewatch", []string{std}, "a file that changes knows nothing of what it says"},
	{"internal/patterns", []string{std}, "a path is read whatever limits it"},
	{"internal/histogram", []string{std}, "numbers are counted whatever they are of"},
	{"internal/notice", []string{std}, "a log line knows nothing of requests"},
	{"internal/listeners", []string{std}, "functions are kept whatever they are told"},
	{"internal/decorate", []string{std, "core", "internal/notice", "stores/guard", "stores/memstore", "stores/refusals"}, "a store is surrounded whatever asks it"},
	{"internal/response", []string{std}, "a response writer knows nothing of limits"},
	{"internal/door", []string{std, "internal/response"}, "package limit stands on it, so it names no type of that"},
	{"internal/engine", []string{std, "core", "internal/waiting"}, "the engine runs plans, and knows no requests"},
	{"internal/terms", []string{std, "core", "rules", "internal/engine", "internal/fields", "internal/waiting", "internal/grammar", "internal/excerpt", "internal/clientip"}, "what callers may take follows from rules and numbers"},
	{"internal/storecheck", []string{std, "core", "internal/notice"}, "a store is checked whatever asks it"},
	{"internal/waiting", []string{std, "core"}, "the order of waiters is about decisions, not requests"},
	{"stores/memstore", []string{std, "core"}, "a store sees charges, not requests, and needs nobody's code"},
	{"stores/refusals", []string{std, "core"}, "what stands around a store knows none"},
	{"stores/prefetch", []string{std, "core"}, "what stands around a store knows none"},
	{"ops/control", []string{std, "internal/notice", "internal/redisfacts", goRedis, "github.com/cespare/xxhash", "go.uber.org/atomic", "golang.org/x/sys/cpu"}, "documents know neither limits nor requests, and need a Redis client with what that needs"},
	{"ops/overrides", []string{std, "core", "ops/control", "internal/notice", "internal/redisfacts", goRedis, "github.com/cespare/xxhash", "go.uber.org/atomic", "golang.org/x/sys/cpu"}, "limits of keys are documents, and know no requests"},
	{"stores/guard", []string{std, "core", "stores/memstore", "internal/notice"}, "what stands around a store knows none but the one that it falls back on"},
}

// never lists arrows that may not exist, however long.
var never = []struct{ from, to, because string }{
	{"core", "net/http", "time and numbers know nothing of requests"},
	{"lua", "net/http", "a script knows nothing of requests"},
	{"internal/decorate", "net/http", "what surrounds a store sees charges, not requests"},
	{"internal/storecheck", "net/http", "a store sees charges, not requests"},
	{"internal/engine", "net/http", "a plan is run for jobs and requests alike"},
	{"stores/memstore", "net/http", "a store sees charges, not requests"},
	{"stores/guard", "net/http", "what stands around a store sees charges, not requests"},
	{"stores/refusals", "net/http", "what stands around a store sees charges, not requests"},
	{"stores/prefetch", "net/http", "what stands around a store sees charges, not requests"},
	{"stores/storetest", module, "the suite knows what every store knows"},
	{"stores/storetest", "stores/memstore", "the suite compares with core, not with a store"},
	{"stores/storetest", "lua", "the suite compares with core, not with its twin"},
	{"stores/storetest", "stores/redisstore", "the suite knows no store"},
	{"stores/storetest", goRedis, "the suite knows no store"},

	{"stores/redisstore", module, "a store sees charges, not requests: arrows go down"},
	{"stores/redisstore", "stores/memstore", "what stands around a store is a store of its own"},
	{"stores/redisstore", "stores/guard", "what stands around a store is a store of its own"},
	{"stores/redisstore", "stores/refusals", "what stands around a store is a store of its own"},
	{"stores/redisstore", ginPath, "a store knows no framework"},
	{"stores/redisstore", echoPath, "a store knows no framework"},

	{".", ginPath, "users of net/http would build Gin"},
	{".", echoPath, "users of net/http would build Echo"},
	{".", goRedis, "users of the memory store would build a Redis client"},
	{".", "lua", "the store is behind an interface"},
	{".", "stores/redisstore", "the store is behind an interface"},
	{".", "adapter", "adapters are above"},
	{".", "throttle", "bandwidth is built on policies"},
	{".", "operate", "tools of operators are above"},
	{"throttle", ginPath, "users of net/http would build Gin"},
	{"throttle", echoPath, "users of net/http would build Echo"},
	{"throttle", goRedis, "a throttle knows no store"},
	{"operate", "adapter", "operators need no framework"},
	{"ops/feed", ginPath, "users of net/http would build Gin"},
	{"ops/feed", echoPath, "users of net/http would build Echo"},
	{"ops/feed", "stores/redisstore", "decisions are published wherever they are made"},
	{".", "ops/feed", "users of the memory store would build a Redis client"},
	{"ops/topkeys", ginPath, "users of net/http would build Gin"},
	{"ops/topkeys", echoPath, "users of net/http would build Echo"},
	{"ops/topkeys", goRedis, "decisions are counted wherever they are made"},
	{".", "ginlimit", "adapters are above"},
	{".", "echolimit", "adapters are above"},

	{"adapter", ginPath, "an adapter of one framework would build another"},
	{"adapter", echoPath, "an adapter of one framework would build another"},
	{"adapter", goRedis, "an adapter knows no store"},
	{"internal/echoflow", echoPath, "it serves every version of Echo"},
	{"ginlimit", echoPath, "one framework is enough to build"},
	{"ginlimit", goRedis, "an adapter knows no store"},
	{"ginlimit", "stores/redisstore", "an adapter knows no store"},
	{"ginlimit", "echolimit", "adapters stand beside each other"},
	{"echolimit", ginPath, "one framework is enough to build"},
	{"echolimit", goRedis, "an adapter knows no store"},
	{"echolimit", "stores/redisstore", "an adapter knows no store"},
	{"echolimit", "ginlimit", "adapters stand beside each other"},
}

// neverDirectly lists what a package may not import itself, though its
// dependencies may.
var neverDirectly = []struct{ from, to, because string }{
	{"stores/redisstore", "net/http", "a store sees charges, not requests"},
	{"ops/control", "net/http", "documents know nothing of requests"},
	{"ops/overrides", "net/http", "limits of keys know nothing of requests"},
	{"ginlimit", module + "/core", "an adapter is handed decisions, and makes none"},
	{"ginlimit", module + "/stores/memstore", "an adapter knows no store"},
	{"ginlimit", module + "/stores/guard", "an adapter knows no store"},
	{"echolimit", module + "/core", "an adapter is handed decisions, and makes none"},
	{"echolimit", module + "/stores/memstore", "an adapter knows no store"},
	{"echolimit", module + "/stores/guard", "an adapter knows no store"},
}

// forTests lists the packages that are made for tests. The others must not
// bring package testing, and its flags, into the programs of users.
var forTests = []string{"stores/storetest", "adapter/adaptertest", "internal/faultproxy", "internal/must", "internal/race", "internal/redistest", "internal/routetest", "internal/turns"}

// TestArrows checks which packages stand on which.
func TestArrows(t *testing.T) {
	packages := list(t)
	find := func(from string) listed {
		p, ok := packages[path(from)]
		require.True(t, ok, "no package %s", from)
		return p
	}
	for _, rule := range only {
		for _, dep := range find(rule.from).Deps {
			assert.True(t, slices.ContainsFunc(rule.may, func(to string) bool { return within(dep, to) }),
				"%s needs %s: %s", rule.from, dep, rule.because)
		}
	}
	for _, rule := range never {
		for _, dep := range find(rule.from).Deps {
			assert.False(t, within(dep, rule.to), "%s needs %s: %s", rule.from, dep, rule.because)
		}
	}
	for _, rule := range neverDirectly {
		assert.NotContains(t, find(rule.from).Imports, rule.to, "%s: %s", rule.from, rule.because)
	}
	for name, p := range packages {
		from := strings.TrimPrefix(name, module+"/")
		if slices.Contains(forTests, from) {
			continue
		}
		for _, dep := range p.Deps {
			assert.False(t, dep == "testing" || within(dep, testifyLib), "%s needs %s: package testing is for tests", from, dep)
			for _, tests := range forTests {
				assert.NotEqual(t, path(tests), dep, "%s is for tests, and %s is not one", dep, from)
			}
		}
	}
}

// path returns the import path of a package of this module.
func path(name string) string {
	if name == "." {
		return module
	}
	return module + "/" + name
}

// within reports whether a package is that which a rule names: a package of
// this module or of the standard library alone, or any of another module.
func within(pkg, name string) bool {
	first, _, _ := strings.Cut(pkg, "/")
	switch {
	case name == std:
		return !strings.Contains(first, ".")
	case name == module:
		return pkg == module
	case strings.Contains(name, "."):
		return pkg == name || strings.HasPrefix(pkg, name+"/")
	}
	return pkg == name || pkg == path(name)
}

// A listed package is one as the go command describes it, without its tests.
type listed struct {
	ImportPath    string
	Imports, Deps []string
}

// list returns the packages of this module and of ops.
func list(t *testing.T) map[string]listed {
	t.Helper()
	out := must.Get(exec.Command("go", "list", "-json=ImportPath,Imports,Deps", "./...", "./ops/...").Output())(t)
	packages := make(map[string]listed)
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else {
			require.NoError(t, err)
		}
		packages[p.ImportPath] = p
	}
}

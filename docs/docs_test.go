// Package docs_test runs the programs of the documentation, and checks the pages
// against the repository.
package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/rules"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode) // Gin prints each route otherwise
	redis.SetLogger(redisLog{})  // before goroutines of go-redis read it
	os.Exit(m.Run())
}

// pages returns the text of each page, by its path from the root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../*.md")
	require.NoError(t, err)
	for _, pattern := range []string{"*.md", "design/*.md"} {
		more, err := filepath.Glob(pattern)
		require.NoError(t, err)
		files = append(files, more...)
	}
	texts := make(map[string]string)
	for _, file := range files {
		texts[path.Join("docs", filepath.ToSlash(file))] = read(t, file)
	}
	return texts
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(text)
}

// TestPrograms checks that each Go block of a page is word for word in a program
// that the tests run.
func TestPrograms(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	examples, err := filepath.Glob("../examples/*/main.go")
	require.NoError(t, err)
	operating, err := filepath.Glob("../ops/*_test.go")
	require.NoError(t, err)
	examples = append(examples, operating...)
	examples = append(examples, "../ops/access/example_test.go", "../ops/policyfile/example_test.go", "../ops/livepage/example_test.go",
		"../adapter/rpc/guide_test.go") // modules of their own
	var programs strings.Builder
	for _, file := range append(files, examples...) {
		programs.WriteString(read(t, file))
	}
	blocks := regexp.MustCompile("(?s)\n```go\n(.*?)```")
	start := regexp.MustCompile("(?m)^(.)")
	for page, text := range pages(t) {
		for _, block := range blocks.FindAllStringSubmatch(text, -1) {
			code, found := block[1], false
			for range 3 { // in a function, or in one within it
				found = found || strings.Contains(programs.String(), code)
				code = start.ReplaceAllString(code, "\t$1")
			}
			assert.True(t, found, "%s: no program that the tests run has the block\n%s", page, block[1])
		}
	}
}

// TestReadme checks that the program of the README is short enough to read at once,
// and a program of its own.
func TestReadme(t *testing.T) {
	_, rest, ok := strings.Cut(read(t, "../README.md"), "```go\n")
	require.True(t, ok)
	program, _, ok := strings.Cut(rest, "```\n")
	require.True(t, ok)
	_, example, ok := strings.Cut(read(t, "../examples/gin/main.go"), "\npackage main\n")
	require.True(t, ok)
	assert.Equal(t, "package main\n"+example, program)
	assert.LessOrEqual(t, strings.Count(program, "\n"), 25)
	assert.LessOrEqual(t, len(strings.Fields(read(t, "../README.md"))), 650)
}

// TestRules checks that the rules and keys in text can be read.
func TestRules(t *testing.T) {
	texts := pages(t)
	functions := rules.Functions{ // that the pages name
		Keys:        []limit.KeyResolver{limit.By("tenant", (*http.Request).UserAgent)},
		Costs:       []rules.Cost{rules.CostBy("rows", func(*http.Request) int64 { return 1 })},
		Settlements: []rules.Settlement{rules.SettleBy("failed-logins", func(*http.Request, int) int64 { return 0 })},
	}
	rules := 0
	for page, text := range texts {
		for _, rule := range regexp.MustCompile("(?m)^(?:\\| `|    )((?:[\\w.-]+: )?\\d+[kM]?/[^`\n]+)").FindAllStringSubmatch(text, -1) {
			_, err := functions.Parse(rule[1])
			assert.NoError(t, err, "%s: %s", page, rule[1])
			rules++
		}
		for _, key := range regexp.MustCompile("\\| `(per [^`]+|global)` \\|").FindAllStringSubmatch(text, -1) {
			_, err := limit.Parse("5/2s " + key[1])
			assert.NoError(t, err, "%s: %s", page, key[1])
			rules++
		}
		for _, tag := range regexp.MustCompile(`limit:"([^"-]+)"`).FindAllStringSubmatch(text, -1) {
			_, err := limit.Parse(tag[1])
			assert.NoError(t, err, "%s: %s", page, tag[1])
			rules++
		}
	}
	assert.GreaterOrEqual(t, rules, 20)
}

// TestRulesAsText checks that docs/rules-as-text.md has an example of each word of the
// grammar, all of which TestRules reads, and that the parts of rules can be read.
func TestRulesAsText(t *testing.T) {
	text := read(t, "rules-as-text.md")
	for _, a := range core.Algorithms() {
		word := a.String()
		assert.True(t, a == core.SlidingLog || strings.Contains(text, " "+word), word)
	}
	for _, word := range []string{"aligned", "zone", "cells", "burst", "missing", "empty", "wait", "on-error", "refuse",
		"shadow", "enforced", "replaces", "hidden", "plan", "reserve", "exempt", "waiters"} {
		assert.Regexp(t, `[ `+"`]"+word+"[ `]", text)
	}
	row := func(part string) []string {
		_, rest, _ := strings.Cut(text, "\n| "+part+" |")
		line, _, _ := strings.Cut(rest, "\n")
		var list []string
		for _, found := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(line[strings.LastIndex(strings.TrimSuffix(line, "|"), "|"):], -1) {
			list = append(list, found[1])
		}
		require.NotEmpty(t, list, part)
		return list
	}
	for part, format := range map[string]string{"name": "%s 5/1m per ip", "count": "%s/1m global sliding-cells", "window": "5/%s per ip",
		"window, one unit": "5/%s per ip", "key": "5/1m %s", "words": "5/1m per ip %s"} {
		for _, example := range row(part) {
			_, err := limit.Parse(fmt.Sprintf(format, example))
			assert.NoError(t, err, example)
		}
	}
}

// TestMigrating checks that each new line of the tables is in the program.
func TestMigrating(t *testing.T) {
	program := read(t, "migrating_test.go")
	rows := regexp.MustCompile("(?m)^\\| `[^|]*` \\| `([^`|]+)` \\|").FindAllStringSubmatch(read(t, "migrating.md"), -1)
	require.GreaterOrEqual(t, len(rows), 12)
	for _, row := range rows {
		assert.Contains(t, program, row[1])
	}
}

// TestGuides checks that each guide of the index is short enough to read before work.
func TestGuides(t *testing.T) {
	index, _, found := strings.Cut(read(t, "README.md"), "\n## Reference\n")
	require.True(t, found)
	guides := regexp.MustCompile(`(?m)^\| \[.*\]\((\S+\.md)\) \|`).FindAllStringSubmatch(index, -1)
	require.Greater(t, len(guides), 30)
	for _, guide := range guides {
		assert.LessOrEqual(t, len(strings.Fields(read(t, guide[1]))), 1000, "words of %s: move what is looked up to a page of the reference", guide[1])
	}
}

// TestLinks checks that each link to a file of the repository, and to a heading
// of a page, leads somewhere.
func TestLinks(t *testing.T) {
	texts := pages(t)
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for page, text := range texts {
		for _, found := range link.FindAllStringSubmatch(text, -1) {
			target, heading, _ := strings.Cut(found[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			file := page
			if target != "" {
				file = path.Join(path.Dir(page), target)
			}
			if _, err := os.Stat(filepath.Join("..", filepath.FromSlash(file))); err != nil {
				t.Errorf("%s: the link %s leads nowhere: %v", page, found[1], err)
				continue
			}
			if heading != "" {
				assert.Contains(t, headings(texts[file]), heading, "%s: the link %s", page, found[1])
			}
		}
	}
}

// headings returns the anchors of a page, as GitHub makes them.
func headings(text string) []string {
	var anchors []string
	drop := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for _, line := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		anchor := drop.ReplaceAllString(strings.ToLower(line[1]), "")
		anchors = append(anchors, strings.ReplaceAll(anchor, " ", "-"))
	}
	return anchors
}

// TestNames checks that the tests that pages name exist.
func TestNames(t *testing.T) {
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	var names strings.Builder
	err := filepath.WalkDir("..", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(file, ".go") {
			return err
		}
		text, err := os.ReadFile(file)
		for _, name := range declared.FindAllSubmatch(text, -1) {
			names.WriteString("\n" + string(name[1]))
		}
		return err
	})
	require.NoError(t, err)
	for page, text := range pages(t) {
		for _, name := range regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w*`).FindAllString(text, -1) {
			// The patterns of go test -run name the beginning of several.
			if !strings.Contains(names.String(), "\n"+name) {
				t.Errorf("%s names %s, which does not exist", page, name)
			}
		}
	}
}

// TestIdentifiers checks that the exported names that pages use exist, such as
// limit.PerIP and Options.Proxies.
func TestIdentifiers(t *testing.T) {
	names := make(map[string]bool)
	types := make(map[string]bool)
	for _, dir := range []string{"", "rules", "core", "stores/memstore", "stores/redisstore", "stores/guard", "stores/refusals", "stores/storetest",
		"operate", "throttle", "adapter", "adapter/adaptertest", "ginlimit", "echolimit", "adapter/rpc/grpclimit", "adapter/rpc/connectlimit", "ops/access", "ops/control", "ops/feed", "ops/livepage",
		"ops/metrics/otellimit", "ops/metrics/promlimit", "ops/overrides", "ops/policyfile", "ops/topkeys", "cmd/limitctl/replay", "cmd/limitctl/replay/accesslog"} {
		declare(t, filepath.Join("..", dir), path.Base(path.Join("limit", dir)), names, types)
	}
	code := regexp.MustCompile("`[^`]+`")
	dotted := regexp.MustCompile(`\b([A-Za-z]\w*)\.([A-Z]\w*)`)
	for page, text := range pages(t) {
		if page == "CHANGELOG.md" { // of names that were
			continue
		}
		for _, span := range code.FindAllString(text, -1) {
			for _, name := range dotted.FindAllStringSubmatch(span, -1) {
				if types[name[1]] && !names[name[1]+"."+name[2]] {
					t.Errorf("%s names %s, which does not exist", page, name[0])
				}
			}
		}
	}
}

// declare notes the exported names of a package, and the fields and methods of
// its types.
func declare(t *testing.T, dir, pkg string, names, types map[string]bool) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		types[pkg] = true
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv == nil {
					names[pkg+"."+n.Name.Name] = true
				} else {
					names[strings.TrimPrefix(exprName(n.Recv.List[0].Type), "*")+"."+n.Name.Name] = true
				}
				return false
			case *ast.ValueSpec:
				for _, name := range n.Names {
					names[pkg+"."+name.Name] = true
				}
			case *ast.TypeSpec:
				names[pkg+"."+n.Name.Name] = true
				members(n, names, types)
			}
			return true
		})
	}
}

func members(spec *ast.TypeSpec, names, types map[string]bool) {
	if !spec.Name.IsExported() {
		return
	}
	switch of := spec.Type.(type) {
	case *ast.StructType:
		types[spec.Name.Name] = true
		for _, field := range of.Fields.List {
			for _, name := range field.Names {
				names[spec.Name.Name+"."+name.Name] = true
			}
		}
	case *ast.InterfaceType:
		types[spec.Name.Name] = true
		for _, method := range of.Methods.List {
			for _, name := range method.Names {
				names[spec.Name.Name+"."+name.Name] = true
			}
		}
	}
}

func exprName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return exprName(e.X)
	case *ast.IndexExpr: // of a type with a parameter
		return exprName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// TestModules checks that the quick start names each module that programs can get.
func TestModules(t *testing.T) {
	_, text, _ := strings.Cut(read(t, "quick-start.md"), "\n## Modules\n")
	text, _, _ = strings.Cut(text, "\n## ")
	var named, published []string
	for _, name := range regexp.MustCompile("`([\\w/]+)`").FindAllStringSubmatch(text, -1) {
		if strings.Contains(read(t, "../go.work"), "\t./"+name[1]+"\n") {
			named = append(named, name[1])
		}
	}
	for _, use := range regexp.MustCompile(`(?m)^\t\./([\w/]+)$`).FindAllStringSubmatch(read(t, "../go.work"), -1) {
		switch use[1] {
		case "benchmarks", "examples", "proof", "tools": // see scripts/release.sh
		default:
			published = append(published, use[1])
		}
	}
	assert.NotEmpty(t, published)
	assert.ElementsMatch(t, published, named)
}

// TestFiles checks that the files that pages name exist.
func TestFiles(t *testing.T) {
	named := regexp.MustCompile("`((?:[a-z][a-z0-9]*/)*[a-z][a-z0-9_]*\\.(?:go|lua|sh))`")
	for page, text := range pages(t) {
		if page == "CHANGELOG.md" || page == "CONTRIBUTING.md" { // of files that were, and that are to be written
			continue
		}
		for _, name := range named.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join("..", filepath.FromSlash(name[1]))); err != nil {
				t.Errorf("%s names the file %s: %v", page, name[1], err)
			}
		}
	}
}

// TestCodes checks that docs/diagnostics.md explains each code of the log.
func TestCodes(t *testing.T) {
	page := read(t, "diagnostics.md")
	codes := regexp.MustCompile(`"(LIMIT-\d+)"`).FindAllStringSubmatch(read(t, "../internal/notice/notice.go"), -1)
	require.NotEmpty(t, codes)
	for _, code := range codes {
		assert.True(t, strings.Contains(page, "## "+code[1]+": "), "no heading for %s", code[1])
	}
}

// send sends a request to h from 192.0.2.1, with headers given as name, value.
func send(h http.Handler, method, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// ok answers every request.
func ok(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("ok\n")) }

func okGin(c *gin.Context) { c.String(http.StatusOK, "ok\n") }

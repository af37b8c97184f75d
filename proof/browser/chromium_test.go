package browser

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/must"
)

const (
	// requireVar makes tests fail rather than skip without a browser.
	requireVar = "LIMIT_REQUIRE_BROWSER"

	// pathVar holds the path of the browser.
	pathVar = "LIMIT_BROWSER"
)

// allocator holds what starts the browser that all tests share.
var allocator context.Context

func TestMain(m *testing.M) {
	logging.Disable() // go-redis logs each failure of an outage
	code := 1
	func() {
		dir, err := os.MkdirTemp("", "limit-browser-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return
		}
		defer os.RemoveAll(dir)
		if path := installed(); path != "" {
			options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.UserDataDir(dir), chromedp.NoSandbox, chromedp.DisableGPU,
				chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("force-prefers-reduced-motion", false))
			exec, stop := chromedp.NewExecAllocator(context.Background(), options...)
			defer stop()
			browser, close := chromedp.NewContext(exec, chromedp.WithLogf(func(string, ...any) {}))
			defer close()
			if err := chromedp.Do(browser, chromedp.Navigate("about:blank")); err != nil {
				// On Ubuntu, chromium-browser may be a script that asks for a snap.
				fmt.Fprintf(os.Stderr, "%s does not start: %v\n", path, err)
			} else {
				allocator = browser
			}
		}
		code = m.Run()
	}()
	os.Exit(code)
}

// installed returns the path of a browser, or "". The headless shell of Chromium takes a
// third of the processor time: it has no windows to draw.
func installed() string {
	for _, name := range []string{os.Getenv(pathVar), "chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"} {
		if name == "" {
			continue
		}
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// A tab is a tab of the browser, with cookies and storage of its own.
type tab struct {
	testing.TB
	ctx context.Context

	mu       sync.Mutex
	messages []string // errors and warnings on the console
}

// watch runs before the scripts of a page.
const watch = `window.seen = {csp: [], long: []};
addEventListener('securitypolicyviolation', (e) => seen.csp.push(e.violatedDirective + ' ' + e.blockedURI));
new PerformanceObserver((list) => { for (const e of list.getEntries()) seen.long.push(Math.round(e.duration)); }).observe({type: 'longtask', buffered: true});`

// look is what a person sees a page with.
type look struct {
	width, height int64
	dark          bool
}

// open opens a page in a tab, which the end of the test closes. It skips the test if
// there is no browser.
func open(t testing.TB, url string, l look) *tab {
	t.Helper()
	if allocator == nil {
		if os.Getenv(requireVar) != "" {
			t.Fatalf("%s is set, and no Chromium is installed", requireVar)
		}
		t.Skip("no Chromium is installed: apt-get install chromium-headless-shell, or set " + pathVar)
	}
	ctx, cancel := chromedp.NewContext(allocator, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	b := &tab{TB: t, ctx: ctx}
	messages := chromedp.Console(ctx)
	go func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			if m.IsException() || m.Type == "error" || m.Type == "warning" {
				b.mu.Lock()
				b.messages = append(b.messages, m.String())
				b.mu.Unlock()
			}
		}
	}()
	must.Get(chromedp.Call(ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: watch}))(t)
	b.look(l)
	b.do(chromedp.Navigate(url))
	return b
}

func (b *tab) look(l look) {
	b.Helper()
	if l.width == 0 {
		l.width, l.height = 1280, 720
	}
	scheme := "light"
	if l.dark {
		scheme = "dark"
	}
	must.Get(chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}))(b)
	b.do(chromedp.EmulateViewport(l.width, l.height))
}

// do runs actions within a time that is enough on a slow machine.
func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 20*time.Second)
	defer cancel()
	require.NoError(b, chromedp.Do(ctx, actions...))
}

// eval returns the value of an expression.
func eval[T any](b *tab, expression string) T {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 20*time.Second)
	defer cancel()
	value := must.Get(chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise)))(b, expression)
	return value
}

// await waits until an expression is true.
func (b *tab) await(within time.Duration, expression string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, within+20*time.Second)
	defer cancel()
	_, err := chromedp.Run(ctx, chromedp.Poll[bool]("Boolean("+expression+")", chromedp.WithPollingTimeout(within), chromedp.WithPollingInterval(20*time.Millisecond)))
	if err != nil {
		require.NoError(b, err, "%s\nwithin %v, on the page:\n%s", expression, within, b.text("body"))
	}
}

// text returns the text of an element as a person sees it.
func (b *tab) text(selector string) string {
	b.Helper()
	return eval[string](b, shown(selector))
}

// awaitText waits until an element has a text.
func (b *tab) awaitText(within time.Duration, selector, text string) {
	b.Helper()
	b.await(within, fmt.Sprintf(`%s.includes(%q)`, shown(selector), text))
}

// shown is the text of an element, or "" if there is none or it is hidden.
func shown(selector string) string {
	return fmt.Sprintf(`((e) => (e && e.checkVisibility() ? e.innerText : ''))(document.querySelector(%q))`, selector)
}

// click clicks as a person does, with the pointer on the middle of the element.
func (b *tab) click(selector string) {
	b.Helper()
	b.do(chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible))
}

// clickText clicks the button of a text within an element.
func (b *tab) clickText(within, text string) {
	b.Helper()
	const mark = `{ for (const e of document.querySelectorAll('[data-marked]')) delete e.dataset.marked;
		const e = [...document.querySelectorAll(%q + ' button')].find((e) => e.textContent.trim() === %q && e.getClientRects().length);
		if (e) e.dataset.marked = ''; Boolean(e) }`
	require.True(b, eval[bool](b, fmt.Sprintf(mark, within, text)), "no button %q in %s", text, within)
	b.click("[data-marked]")
}

// write replaces the text of a field by the keyboard.
func (b *tab) write(selector, text string) {
	b.Helper()
	b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`document.querySelector(%q).select()`, selector)), chromedp.SendKeys(chromedp.CSS(selector), text))
}

// noErrors checks what the browser says of the page.
func (b *tab) noErrors() {
	b.Helper()
	b.noErrorsBut("no message has this text")
}

// noErrorsBut allows messages with a text, such as that of a status.
func (b *tab) noErrorsBut(allowed string) {
	b.Helper()
	require.Empty(b, eval[[]string](b, `seen.csp`), "violations of the content security policy")
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.messages {
		require.Contains(b, m, allowed, "an error on the console")
	}
}

package browser

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/race"
)

// demo starts limitctl demo on a free port and returns its address, with the token of the
// live page.
func demo(t *testing.T) string {
	t.Helper()
	if allocator == nil {
		return "" // open skips the test
	}
	limitctl := filepath.Join(t.TempDir(), "limitctl")
	said, err := race.Build("../../cmd/limitctl", limitctl).CombinedOutput()
	require.NoError(t, err, "%s", said)
	cmd := exec.Command(limitctl, "demo", "--addr", "127.0.0.1:0")
	out := must.Get(cmd.StdoutPipe())(t)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		assert.NoError(t, cmd.Process.Signal(os.Interrupt))
		assert.NoError(t, cmd.Wait())
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if found := regexp.MustCompile(`^In a browser: (http://\S+)$`).FindStringSubmatch(lines.Text()); found != nil {
			go io.Copy(io.Discard, out)
			return found[1]
		}
	}
	t.Fatal("the demo does not say where it is")
	return ""
}

// One click on the first screen of the demo shows a refusal with its headers beside the
// button, and the bars of its rules refill. The link leads to what the limiter did.
func TestDemo(t *testing.T) {
	base := demo(t)
	for name, l := range looks {
		t.Run(name, func(t *testing.T) {
			b := open(t, base, l)
			require.NotContains(t, eval[string](b, `location.href`), "token")
			b.audited("nothing sent")
			b.clickText(".route[data-path='/gin/update']", "Send 6 at once")
			const answers = ".route[data-path='/gin/update'] .answers"
			b.awaitText(soon, answers, "429 Too Many Requests\nRetry-After: ")
			b.awaitText(soon, answers, `RateLimit: "per-ip-2s";r=0;t=`)
			b.awaitText(soon, answers, "violated-policies: per-ip-2s")
			if l.width == 1280 {
				assert.True(t, eval[bool](b, `[...document.querySelectorAll("`+answers+`, .route[data-path='/gin/update'] button")].every((e) => e.getBoundingClientRect().bottom <= innerHeight)`),
					"the buttons, the refusal and its headers are on the first screen")
			}
			const left = `document.querySelector("[data-path='/gin/update'] [data-rule=per-ip-2s] meter").value`
			b.await(soon, left+` < 1`)
			b.await(5*time.Second, left+` === 1`)
			if dir := os.Getenv(screenshotsVar); dir != "" && name == "light" {
				b.picture(filepath.Join(dir, "demo.png"), l)
			}
			b.audited("a refusal")

			b.do(chromedp.Navigate(eval[string](b, `document.querySelector("header a").href`)))
			b.awaitText(long, "#refusals", "per-ip-2s allows 5 in 2s for 127.0.0.1")
			b.awaitText(soon, "#bans-empty", "limitctl demo: --redis URL")
			b.noErrorsBut("429")
		})
	}
	t.Run("a password in the address", func(t *testing.T) {
		b := open(t, strings.Replace(base, "://", "://ann:s3cret@", 1), look{})
		b.clickText(".route[data-path='/http/update']", "Send")
		b.awaitText(soon, ".route[data-path='/http/update'] .answers", "200 OK")
	})
}

package browser

import (
	"bytes"
	"cmp"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
)

// screenshotsVar holds the folder for screenshots, such as docs/images.
const screenshotsVar = "LIMIT_SCREENSHOTS"

// TestScreenshots takes the pictures of the documentation: the page after two minutes of
// requests and a short outage of Redis.
func TestScreenshots(t *testing.T) {
	dir := os.Getenv(screenshotsVar)
	if dir == "" {
		t.Skip(screenshotsVar + " is not set")
	}
	require.NoError(t, os.MkdirAll(dir, 0o755))
	server := redistest.Launch(t)
	shared := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true}))
	s := serve(t, shared, nil)
	s.route("GET /export", limit.PerUser(time.Hour, 100))
	s.route("POST /update", limit.PerIP(2*time.Second, 4), limit.Global(time.Minute, 1000))
	s.route("GET /items", limit.PerIP(time.Minute, 300))
	done := make(chan struct{})
	go s.traffic(done)
	t.Cleanup(func() { done <- struct{}{} })

	b := open(t, s.page(), look{})
	b.awaitText(long, "#keys", "203.0.113.")
	time.Sleep(50 * time.Second)
	b.click("#keys .link")
	b.awaitText(soon, "#peek", "left")
	b.clickText("#peek", "Override…")
	b.clickText("#confirm", "Override the limit")
	b.awaitText(soon, "#inspector-status", "The limit of")
	b.clickText("#inspector", "Close")
	b.clickText("main", "Ban a client…")
	b.write("#confirm [name=entry]", "198.51.100.0/24")
	b.write("#confirm [name=reason]", "guesses passwords")
	b.clickText("#confirm", "Ban the client")
	b.awaitText(soon, "#announcer", "Banned")
	server.Kill()
	b.awaitText(long, "#banner", "The store is unavailable")
	b.picture(filepath.Join(dir, "live-page-outage.png"), look{1280, 300, false})
	time.Sleep(4 * time.Second)
	server.Restart()
	time.Sleep(60 * time.Second)
	for name, l := range map[string]look{"": {1280, 900, false}, "-dark": {1280, 900, true}, "-phone": {360, 760, false}, "-phone-dark": {360, 760, true}} {
		b.picture(filepath.Join(dir, "live-page"+name+".png"), l)
	}
	b.look(look{})
	b.clickText("#keys", "203.0.113.2")
	b.awaitText(soon, "#peek", "left")
	b.picture(filepath.Join(dir, "live-page-inspector.png"), look{1280, 720, false})
	b.noErrors()
}

// traffic sends requests of many clients, a few of them much more than the others.
func (s *service) traffic(done <-chan struct{}) {
	random := rand.New(rand.NewPCG(1, 2))
	clients := rand.NewZipf(random, 1.3, 4, 240)
	routes := []string{"POST /login", "GET /search", "GET /search", "GET /export", "POST /update", "GET /items", "GET /items", "GET /items"}
	for {
		select {
		case <-done:
			return
		case <-time.After(time.Duration(2+random.IntN(10)) * time.Millisecond):
		}
		n := clients.Uint64()
		method, path, _ := strings.Cut(routes[random.IntN(len(routes))], " ")
		r := httptest.NewRequest(method, path, nil)
		r.RemoteAddr = fmt.Sprintf("203.0.113.%d:4711", n+1)
		if n > 200 {
			r.RemoteAddr = fmt.Sprintf("[2001:db8:0:%x::1]:4711", n)
		}
		r.Header = http.Header{"X-User": {fmt.Sprintf("%s-%d", []string{"alice", "bob", "carol", "dave", "erin"}[n%5], n/5+1)}}
		s.mux.ServeHTTP(httptest.NewRecorder(), r)
	}
}

// picture writes what the window shows, in few colors, to be small.
func (b *tab) picture(path string, l look) {
	b.Helper()
	b.look(l)
	b.do(chromedp.MouseEvent("mouseMoved", 1, 1), chromedp.Evaluate[chromedp.Void](`document.activeElement.blur(), document.querySelector('dialog[open]') || scrollTo(0, 0)`))
	time.Sleep(2500 * time.Millisecond) // for the bars to come to rest
	text := must.Get(chromedp.Run(b.ctx, chromedp.CaptureScreenshot()))(b)
	full := must.Get(png.Decode(bytes.NewReader(text)))(b)
	var small bytes.Buffer
	require.NoError(b, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, paletted(full)))
	require.NoError(b, os.WriteFile(path, small.Bytes(), 0o644))
	require.LessOrEqual(b, small.Len(), 150<<10, path)
}

// paletted returns a picture in its most frequent colors that differ.
func paletted(full image.Image) *image.Paletted {
	count := map[color.RGBA]int{}
	box := full.Bounds()
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(full.At(x, y)).(color.RGBA) }
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for x := box.Min.X; x < box.Max.X; x++ {
			count[at(x, y)]++
		}
	}
	all := slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)))
	})
	var palette color.Palette
	for _, c := range all {
		if len(palette) < 256 && !slices.ContainsFunc(palette, func(p color.Color) bool { return near(p.(color.RGBA), c) }) {
			palette = append(palette, c)
		}
	}
	small, nearest := image.NewPaletted(box, palette), map[color.RGBA]uint8{}
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for x := box.Min.X; x < box.Max.X; x++ {
			c := at(x, y)
			i, ok := nearest[c]
			if !ok {
				i = uint8(palette.Index(c))
				nearest[c] = i
			}
			small.SetColorIndex(x, y, i)
		}
	}
	return small
}

// near reports whether two colors look alike.
func near(a, b color.RGBA) bool {
	square := func(x, y uint8) int { return (int(x) - int(y)) * (int(x) - int(y)) }
	return square(a.R, b.R)+square(a.G, b.G)+square(a.B, b.B) < 60
}

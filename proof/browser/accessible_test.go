package browser

import (
	_ "embed"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/ops/livepage"
)

//go:embed audit.js
var audit string

// looks are the schemes and widths of the page.
var looks = map[string]look{
	"light": {1280, 720, false}, "dark": {1280, 720, true}, "light phone": {360, 740, false}, "dark phone": {360, 740, true},
}

// brokenWords are the words of the bans and overrides that are not on one line.
const brokenWords = `[...document.querySelectorAll('#bans :is(th, td), #overrides :is(th, td)')].flatMap((cell) => {
	const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), broken = [];
	while (texts.nextNode()) {
		for (const word of texts.currentNode.data.matchAll(/\S+/g)) {
			const range = document.createRange();
			range.setStart(texts.currentNode, word.index);
			range.setEnd(texts.currentNode, word.index + word[0].length);
			if (new Set([...range.getClientRects()].map((r) => r.top)).size > 1) broken.push(word[0]);
		}
	}
	return broken;
})`

// audited checks names, headings, tables, contrast and widths: see audit.js.
func (b *tab) audited(state string) {
	b.Helper()
	assert.Empty(b, eval[[]string](b, audit), state)
}

// Each state of the page passes the audit in both schemes, on a screen and on a phone.
func TestAccessible(t *testing.T) {
	for name, l := range looks {
		t.Run(name, func(t *testing.T) {
			s := serve(t, redistest.Client(t), nil)
			b := open(t, s.page(), l)
			b.awaitText(long, "#banner", "No decision yet")
			b.audited("no decisions")

			s.send(7, "POST", "/login", client, "")
			s.send(53, "GET", "/search", client, "alice")
			b.await(soon, `document.querySelectorAll('#keys .link').length >= 2`)
			b.awaitText(soon, "#refusals", "per-user-1m allows 50")
			b.audited("figures")

			b.clickText("#keys", client)
			b.awaitText(soon, "#peek", "0 of 5 left.")
			b.audited("the inspector")
			b.clickText("#peek", "Override…")
			b.audited("the confirmation of an override")
			b.clickText("#confirm", "Override the limit")
			b.awaitText(soon, "#inspector-status", "The limit of")
			b.clickText("#peek", "Ban…")
			b.write("#confirm [name=entry]", "!")
			b.clickText("#confirm", "Ban the client")
			b.awaitText(soon, "#confirm-status", "Failed:")
			b.audited("an error")
			b.write("#confirm [name=entry]", "198.51.100.7")
			b.write("#confirm [name=reason]", "guesses passwords")
			b.do(chromedp.Evaluate[chromedp.Void](`document.querySelector('#confirm [name=seconds]').value = '604800'`)) // which shows a date
			b.clickText("#confirm", "Ban the client")
			b.awaitText(soon, "#inspector-status", "Banned")
			b.clickText("#inspector", "Close")
			b.await(soon, `document.querySelectorAll('#bans tbody tr, #overrides tbody tr').length === 2`)
			b.audited("bans and overrides")
			assert.Empty(b, eval[[]string](b, brokenWords), "words on two lines")

			s.stop()
			b.awaitText(long, "#banner", "Disconnected")
			b.audited("disconnected")
		})
	}
}

// The audit finds what it is for.
func TestAudit(t *testing.T) {
	s := serve(t, nil, nil)
	s.send(6, "POST", "/login", client, "")
	b := open(t, s.page(), look{})
	b.awaitText(long, "#refusals", client)
	for fault, script := range map[string]string{
		"button#next: no name":             `document.querySelector('#next').textContent = ''; document.querySelector('#pager').hidden = false`,
		"two elements have the id search":  `document.querySelector('#keys').id = 'search'`,
		"aria-labelledby names no element": `document.querySelector('#keys-title').id = 'other'`,
		"Bans: h4 after h2":                `document.querySelector('#bans-title').outerHTML = '<h4 id="bans-title">Bans</h4>'`,
		"contrast 1.00":                    `document.querySelector('#range').style.color = 'canvas'; document.querySelector('#pager').style.background = 'canvas'; document.querySelector('#pager').hidden = false`,
		"“Policies”: contrast 2.":          `document.querySelector('main').style.opacity = 0.45`,
		"a row of 3 cells under 4 headers": `document.querySelector('#keys tbody tr').lastChild.remove()`,
		"to click, and no control":         `document.querySelector('#banner').style.cursor = 'pointer'`,
		"wide in a window of 1280":         `document.querySelector('main').style.width = '1500px'`,
	} {
		b.do(chromedp.Reload())
		b.awaitText(long, "#refusals", client)
		found := eval[[]string](b, "{"+script+"};"+audit)
		assert.Contains(t, strings.Join(found, "\n"), fault)
	}
}

// Everything can be reached and done by the keyboard, in the order of the page, and the
// focus returns to where it was.
func TestKeyboard(t *testing.T) {
	s := serve(t, redistest.Client(t), nil)
	s.send(6, "POST", "/login", client, "")
	b := open(t, s.page(), look{})
	b.awaitText(long, "#keys", client)
	b.awaitText(soon, "#refusals", client)
	controls := eval[int](b, `window.controls = [...document.querySelectorAll('a, button, input')].filter((e) => e.checkVisibility() && !e.disabled && !(e.type === 'radio' && !e.checked)), controls.length`)
	require.Greater(t, controls, 12)
	for i := range controls {
		b.do(chromedp.KeyEvent(kb.Tab))
		require.True(t, eval[bool](b, fmt.Sprintf(`document.activeElement === controls[%d]`, i)), "control %d: the focus is on %s",
			i, eval[string](b, `document.activeElement.outerHTML.slice(0, 200)`))
		require.True(t, eval[bool](b, `{ const e = document.activeElement, s = getComputedStyle(e.type === 'radio' ? e.nextElementSibling : e); s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2 }`),
			"control %d shows no focus", i)
	}

	b.do(chromedp.Focus(chromedp.CSS("#keys .link")), chromedp.KeyEvent(kb.Enter))
	b.awaitText(soon, "#peek", "0 of 5 left.")
	require.True(t, eval[bool](b, `document.querySelector('#inspector').contains(document.activeElement)`))
	b.do(chromedp.Focus(chromedp.CSS("[data-act=reset]")), chromedp.KeyEvent(" "))
	b.awaitText(soon, "#confirm", "Reset 203.0.113.9?")
	require.Equal(t, "Cancel", eval[string](b, `document.activeElement.textContent`), "nothing happens by an Enter too many")
	b.do(chromedp.KeyEvent(kb.Escape))
	b.await(soon, `!document.querySelector('#confirm').open`)
	require.Equal(t, "reset", eval[string](b, `document.activeElement.dataset.act`))
	b.do(chromedp.KeyEvent(kb.Escape))
	b.await(soon, `!document.querySelector('#inspector').open`)
	require.Equal(t, client, eval[string](b, `document.activeElement.textContent`))
	b.noErrors()
}

// Figures that change each second are not read aloud. Changes of the health are, once.
func TestAnnouncements(t *testing.T) {
	s := serve(t, nil, &livepage.Options{})
	b := open(t, s.page(), look{})
	b.awaitText(long, "#banner", "No decision yet")
	b.do(chromedp.Evaluate[chromedp.Void](`window.said = []; for (const e of document.querySelectorAll('[role=status], [role=alert], [aria-live]'))
		new MutationObserver(() => said.push(e.textContent)).observe(e, {childList: true, characterData: true, subtree: true})`))
	for range 4 {
		s.send(7, "POST", "/login", client, "")
		time.Sleep(time.Second) // for the figures to change
	}
	require.Equal(t, []string{"Healthy. No decision of the last 5 minutes was made without the store."}, eval[[]string](b, `said`))
	s.stop()
	b.await(long, `said.length === 2 && said[1].startsWith('Disconnected.')`)
}

// Nothing moves for those who have asked for that.
func TestReducedMotion(t *testing.T) {
	s := serve(t, nil, nil)
	s.send(6, "POST", "/login", client, "")
	b := open(t, s.page(), look{})
	b.awaitText(long, "#keys", client)
	const duration = `getComputedStyle(document.querySelector('#keys .bar span')).transitionDuration`
	require.Equal(t, "1s, 0.3s", eval[string](b, duration))
	must.Get(chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-reduced-motion", Value: "reduce"}}}))(t)
	require.Equal(t, "0s", eval[string](b, duration))
}

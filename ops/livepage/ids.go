package livepage

import (
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/routelimit/limit/ops/topkeys"
)

// maxIDs is how many ids find their key: more than one state shows.
const maxIDs = 4096

// ids stand for texts that are not shown, such as hidden keys. They are made with a secret
// of their own, so that nobody finds an address or a user by trying all of them. The last
// maxIDs that were shown, and at most as many before, find their text again.
type ids struct {
	id           func(text string) string
	mu           sync.Mutex
	newer, older map[string]string // texts by id
}

func newIDs() *ids { return &ids{id: topkeys.Hashed(nil), newer: map[string]string{}} }

// of returns the id of a text: 12 letters and digits.
func (i *ids) of(text string) string {
	id := i.id(text)
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, known := i.newer[id]; !known {
		if len(i.newer) == maxIDs {
			i.older, i.newer = i.newer, map[string]string{}
		}
		i.newer[id] = text
	}
	return id
}

// find returns the text of an id that was shown.
func (i *ids) find(id string) (text string, ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if text, ok = i.newer[id]; !ok {
		text, ok = i.older[id]
	}
	return text, ok
}

// show returns a key as viewers see it, or its id instead. The same key has one id in all
// policies, so that a client is recognized. A key that is not text has both, since JSON
// cannot carry it back.
func (p *page) show(key string) (shown, id string) {
	switch {
	case key == "":
		return "", ""
	case p.options.HideKeys:
		return "", p.keyIDs.of(key)
	case !utf8.ValidString(key):
		return strings.ToValidUTF8(key, "\uFFFD"), p.keyIDs.of(key)
	}
	return key, ""
}

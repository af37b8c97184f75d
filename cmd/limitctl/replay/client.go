package replay

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"

	"github.com/routelimit/limit/internal/clientip"
)

// A client is an address of the log, and what it did. Addresses with one key, such as
// those of an IPv6 /64, are different clients that share quotas.
type client struct {
	Client
	key     string // as limit.ByIP resolves it; "" if the log has no address
	hash    uint64
	tracked bool // whether results may list it

	stayFrom, stayUntil int64 // of the current stay; 0 if there is none
}

const maxText = 256 // bytes of an address, a user, an agent or a shown key that are kept

// client returns the client of an address: the same one each time, as far as the bound allows.
func (r *run) client(address string) *client {
	if c := r.clients[address]; c != nil {
		return c
	}
	address = strings.Clone(address)
	key := clientip.Key(address, r.options.IPv6Prefix)
	c := &client{Client: Client{Address: address}, key: key, hash: hash(key)}
	if c.tracked = len(r.clients) < r.options.maxClients && len(address) <= maxText; c.tracked {
		r.clients[address] = c
	}
	return c
}

const maxTexts = 1 << 16

// kept returns a copy of a text, which does not hold its whole line in memory. Equal texts share one
// copy as far as the bound allows.
func (r *run) kept(text string) string {
	if t, known := r.texts[text]; known {
		return t
	}
	if len(text) > maxText {
		return strings.Clone(text)
	}
	if len(r.texts) >= maxTexts {
		clear(r.texts)
	}
	text = strings.Clone(text)
	r.texts[text] = text
	return text
}

// hash is the same in each run, so that results can be repeated.
func hash(s string) uint64 {
	sum := sha256.Sum256([]byte(s))
	return binary.BigEndian.Uint64(sum[:])
}

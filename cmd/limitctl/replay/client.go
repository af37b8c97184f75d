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
	agent   *agent

	stayFrom, stayUntil int64 // of the current stay; 0 if there is none
}

// A user is a user name of the log.
type user struct {
	name string
	hash uint64
}

// An agent is a user agent of the log.
type agent struct {
	text   string
	header []string // of requests
}

// A known keeps one value for each text of the log, as far as its bound allows.
type known[T any] struct {
	most   int
	values map[string]*T
	make   func(text string, kept bool) *T
}

func (k *known[T]) get(text string) *T {
	if v := k.values[text]; v != nil {
		return v
	}
	text = strings.Clone(text)
	kept := len(k.values) < k.most && len(text) <= maxText
	v := k.make(text, kept)
	if kept {
		k.values[text] = v
	}
	return v
}

// A registry has the addresses, users and agents of the log.
type registry struct {
	clients known[client]
	users   known[user]
	agents  known[agent]
}

const (
	maxAgents = 1 << 14
	maxText   = 256 // bytes of an address, a user or an agent that are kept
)

var noUser = &user{}

func newRegistry(o *Options) *registry {
	return &registry{
		known[client]{o.maxClients, make(map[string]*client), func(text string, kept bool) *client {
			key := clientip.Key(text, o.IPv6Prefix)
			return &client{Client: Client{Address: text}, key: key, hash: hash(key), tracked: kept}
		}},
		known[user]{o.maxClients, make(map[string]*user), func(text string, _ bool) *user {
			return &user{name: text, hash: hash(text)}
		}},
		known[agent]{maxAgents, make(map[string]*agent), func(text string, _ bool) *agent {
			return &agent{text, []string{text}}
		}},
	}
}

// hash is the same in each run, so that results can be repeated.
func hash(s string) uint64 {
	sum := sha256.Sum256([]byte(s))
	return binary.BigEndian.Uint64(sum[:])
}

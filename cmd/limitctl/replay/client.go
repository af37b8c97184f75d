package replay

import (
	"hash/fnv"
	"math"
	"math/bits"
	"strings"

	"github.com/routelimit/limit/internal/clientip"
)

// A client is an address of the log, and what it did. Addresses with one key, such as
// those of an IPv6 /64, are different clients that share quotas.
type client struct {
	address string
	key     string // as limit.ByIP resolves it; "" if the log has no address
	hash    uint64
	tracked bool // whether results may list it

	requests, refused   int64
	reads               int64 // GET and HEAD
	missing, denied     int64 // answered with 400 or 404, and with 401 or 403
	probes, robots      int64
	scripts             int64     // by an agent that is a library, or none
	bots                int64     // by an agent that says so
	paths               [2]uint64 // which of 128 hashes of paths have occurred
	second              int64
	inSecond, most      int32 // requests in the second, and in the busiest one
	firstRefused, last  int64 // times of refusals
	stayFrom, stayUntil int64 // of the current stay; 0 if there is none
	longest             int64
	agent               *agent
}

// A user is a user name of the log.
type user struct {
	name string
	hash uint64
}

// An agent is a user agent of the log.
type agent struct {
	text        string
	bot, script bool
}

// A registry keeps one value for each address, user and agent, as far as its bounds
// allow.
type registry struct {
	maxClients int
	ipv6Prefix int
	clients    map[string]*client
	users      map[string]*user
	agents     map[string]*agent
}

const (
	maxAgents = 1 << 14
	maxText   = 256 // bytes of an address, a user or an agent that are kept
)

var noUser = &user{}

func newRegistry(o *Options) *registry {
	return &registry{maxClients: o.MaxClients, ipv6Prefix: o.IPv6Prefix, clients: make(map[string]*client),
		users: make(map[string]*user), agents: make(map[string]*agent)}
}

func (g *registry) client(address string) *client {
	if c := g.clients[address]; c != nil {
		return c
	}
	text := strings.Clone(address)
	c := &client{address: text, key: clientip.Key(text, g.ipv6Prefix)}
	c.hash = hash(c.key)
	if len(g.clients) < g.maxClients && len(text) <= maxText {
		c.tracked = true
		g.clients[text] = c
	}
	return c
}

func (g *registry) user(name string) *user {
	if name == "" {
		return noUser
	}
	if u := g.users[name]; u != nil {
		return u
	}
	u := &user{name: strings.Clone(name)}
	u.hash = hash(u.name)
	if len(g.users) < g.maxClients && len(name) <= maxText {
		g.users[u.name] = u
	}
	return u
}

func (g *registry) agent(text string) *agent {
	if len(text) > maxText {
		text = text[:maxText]
	}
	if a := g.agents[text]; a != nil {
		return a
	}
	a := &agent{text: strings.Clone(text)}
	lower := strings.ToLower(a.text)
	a.bot, a.script = containsAny(lower, botWords), lower == "" || containsAny(lower, scriptWords)
	if len(g.agents) < maxAgents {
		g.agents[a.text] = a
	}
	return a
}

// hash is the same in each run, so that results can be repeated.
func hash(s string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(s))
	n := h.Sum64() // whose high bits hardly depend on the last bytes
	n = (n ^ n>>33) * 0xff51afd7ed558ccd
	n = (n ^ n>>33) * 0xc4ceb9fe1a85ec53
	return n ^ n>>33
}

// note counts a request.
func (c *client) note(e *event, now int64) {
	c.requests++
	p := e.place
	if p.read {
		c.reads++
	}
	if p.probe {
		c.probes++
	}
	if p.robots {
		c.robots++
	}
	if e.agent.bot {
		c.bots++
	}
	if e.agent.script {
		c.scripts++
	}
	c.agent = e.agent
	switch e.status {
	case 400, 404:
		c.missing++
	case 401, 403:
		c.denied++
	}
	c.paths[p.hash>>6&1] |= 1 << (p.hash & 63)
	if s := now / second; s != c.second {
		c.second, c.inSecond = s, 0
	}
	c.inSecond++
	c.most = max(c.most, c.inSecond)
}

// distinctPaths estimates how many paths a client has requested, by linear counting.
func (c *client) distinctPaths() int64 {
	const m = 128
	zero := m - bits.OnesCount64(c.paths[0]) - bits.OnesCount64(c.paths[1])
	if zero == 0 {
		return 600 // or more
	}
	return int64(math.Round(m * math.Log(m/float64(zero))))
}

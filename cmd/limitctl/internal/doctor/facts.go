// Package doctor checks a deployment of the library and says what to change.
//
// It has three parts. [Redis] and [Web] ask servers and collect facts; a fact that
// is missing has a reason in its place. [Examine] runs the checks, which are pure
// functions from facts to findings. [Print] and [PrintJSON] make findings safe to
// display, since attackers choose the names of keys.
package doctor

import (
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/internal/redisfacts"
)

// Facts describe a deployment.
type Facts struct {
	Redis *RedisFacts // nil if no Redis was named
	Web   *WebFacts   // nil if no application was named
}

// RedisFacts describe a Redis.
type RedisFacts struct {
	Prefix  string // of the keys
	TLS     bool
	DB      int
	Cluster bool // whether --cluster was given
	Nodes   []Node

	Keys Keys
}

// A Node is one server. A field that could not be read is empty, and the error
// beside it says why.
type Node struct {
	Addr    string
	Replica bool   // it was listed as a replica of another node
	Flags   string // in CLUSTER NODES, such as "master,fail?"
	Err     string // why it does not answer

	Info      map[string]string // INFO
	InfoErr   error
	Config    map[string]string // CONFIG GET
	ConfigErr error

	ClusterInfo map[string]string // CLUSTER INFO
	ClusterErr  error
	Migrating   int // slots that migrate from or to it

	// Offset is how far its clock is ahead of that of this machine, give or take
	// Uncertainty.
	Offset, Uncertainty time.Duration
	TimeErr             error

	Ping, Script       []time.Duration // of calls, in order of size
	PingErr, ScriptErr error

	User   string // empty if unknown
	Rights redisfacts.Rights

	client *redis.Client
}

// Keys are the keys that begin with the prefix, or some of them.
type Keys struct {
	Err   string
	More  bool // there may be more
	Found []Key
}

type Key struct {
	Name  string
	Type  string
	TTL   time.Duration // negative: it never expires
	Size  int64         // bytes of the value, if it is a string
	First byte          // of the value
}

// WebFacts describe an application.
type WebFacts struct {
	Err     string  // why the first request got no answer
	Proxies []Probe // of one route: two plain requests, then one with a forged address
	Routes  []Probe // one for each route
}

// A Probe is a request and its response.
type Probe struct {
	Sent      string // the request line, and headers
	Route     string
	Err       string
	Status    int
	Remaining map[string]int64 // of each rule, in the headers
}

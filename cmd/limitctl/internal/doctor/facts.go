// Package doctor checks a deployment of the library and says what to change.
//
// It has three parts. [Redis] and [Web] ask servers and collect facts; a fact that
// is missing has a reason in its place. [Examine] runs the checks, which are pure
// functions from facts to findings. [Print] and [PrintJSON] make findings safe to
// display, since attackers choose the names of keys.
package doctor

import (
	"time"

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

	Keys    Keys
	Control Control
}

// A Node is one server. A field that could not be read is empty, and the error
// beside it says why.
type Node struct {
	Addr    string
	Replica bool   // it was listed as a replica of another node
	Flags   string // in CLUSTER NODES, such as "master,fail?"
	Err     string // why it does not answer

	Info      map[string]string // INFO
	InfoErr   string
	Config    map[string]string // CONFIG GET
	ConfigErr string

	ClusterInfo map[string]string // CLUSTER INFO
	ClusterErr  string
	Migrating   int // slots that migrate from or to it

	// Offset is how far its clock is ahead of that of this machine, give or take
	// Uncertainty. Time is its clock.
	Offset, Uncertainty time.Duration
	Time                time.Time
	TimeErr             string

	Ping, Script       []time.Duration // of calls, in order of size
	PingErr, ScriptErr string

	Slow    []Slow // entries of SLOWLOG, of the last day
	SlowErr string

	User      string            // empty if unknown
	Rights    map[string]string // for each command that was tried: why it is refused, or ""
	RightsBy  string            // how they were tried
	RightsErr string
	Writable  bool   // a command that writes was run, and accepted
	WriteErr  string // why the server refuses writes, such as READONLY …
}

// A Slow is an entry of the slow log.
type Slow struct {
	Command  string        // in lower case
	Ours     bool          // a script on keys with the prefix
	Duration time.Duration // of the command
}

// Keys are the keys that begin with the prefix, or some of them.
type Keys struct {
	Err   string
	More  bool // there may be more
	Found []Key
}

// A Key is a key of Redis.
type Key struct {
	Name  string
	Type  string
	TTL   time.Duration // negative: it never expires
	Size  int64         // bytes of the value, if it is a string
	First byte          // of the value
}

// Control is what package control has stored under the prefix: bans, overrides and
// pushed policies.
type Control struct {
	Err     string // why the kinds could not be read
	Kinds   []ControlKind
	Unknown []string                  // other keys, or some of them
	Addr    string                    // of the node that has them
	User    string                    // empty if unknown
	Rights  *redisfacts.Rights // nil if they were not asked for
}

// A ControlKind is a kind of documents.
type ControlKind struct {
	Name      string
	Version   string   // the number of changes
	Documents int64    // with those that have ended and are not yet removed
	Size      int64    // bytes of the documents
	Wrong     []string // keys of another type
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

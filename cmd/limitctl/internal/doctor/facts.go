// Package doctor looks at a deployment of the library and says what to change.
//
// It is in three parts. Gathering ([Redis], [Web]) asks servers and judges
// nothing; what it could not learn has a reason in its place. Checks
// ([Examine]) are functions from facts to findings, and ask nobody. Printing
// ([Print], [PrintJSON]) makes findings safe to look at: names of keys are text
// that attackers choose.
package doctor

import "time"

// Facts are what has been learnt of a deployment.
type Facts struct {
	Redis *RedisFacts // nil if no Redis was named
	Web   *WebFacts   // nil if no application was named
}

// RedisFacts are what has been learnt of the Redis.
type RedisFacts struct {
	Prefix  string // of the keys
	TLS     bool
	DB      int
	Cluster bool // whether the program is said to use a Cluster
	Nodes   []Node

	Keys Keys
}

// A Node is one server. What could not be learnt is empty, and the error
// beside it says why.
type Node struct {
	Addr    string
	Replica bool   // it was found as a replica of another
	Flags   string // what the Cluster says of it, such as "master,fail?"
	Err     string // why it could not be asked at all

	Info      map[string]string // INFO
	InfoErr   string
	Config    map[string]string // CONFIG GET
	ConfigErr string

	ClusterInfo map[string]string // CLUSTER INFO
	ClusterErr  string
	Migrating   int // slots that are on their way from or to it

	// Offset is how far its clock is ahead of that of this machine, up to
	// Uncertainty more or less. Time is its clock.
	Offset, Uncertainty time.Duration
	Time                time.Time
	TimeErr             string

	Ping, Script       []time.Duration // of calls, in order of size
	PingErr, ScriptErr string

	Slow    []Slow // entries of SLOWLOG, of the last day
	SlowErr string

	User      string            // empty if unknown
	Rights    map[string]string // why a command is refused, or "", for those that were tried
	RightsBy  string            // how they were found out
	RightsErr string
	WriteErr  string // why it would refuse to write, such as READONLY …
}

// A Slow is an entry of the slow log.
type Slow struct {
	Command  string        // in lower case
	Ours     bool          // a script on keys with the prefix
	Duration time.Duration // that Redis did nothing else
}

// Keys are those that begin with the prefix, as far as they were looked at.
type Keys struct {
	Err   string
	More  bool // there may be others
	Found []Key
}

// A Key is one of Redis.
type Key struct {
	Name  string
	Type  string
	TTL   time.Duration // negative: it never expires
	Size  int64         // bytes of the value, if it is a string
	First byte          // of the value
}

// WebFacts are what an application has answered. The first two probes of a
// route are plain, the third has a forged address.
type WebFacts struct {
	Proxies []Probe
	Routes  []Probe // one for each route
}

// A Probe is a request that was sent, and what came back.
type Probe struct {
	Sent      string // the request line, and headers
	Route     string
	Err       string
	Status    int
	Remaining map[string]int64 // of each rule, by the headers
}

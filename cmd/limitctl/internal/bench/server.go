package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/internal/redisfacts"
)

// A Server is what is loaded.
type Server struct {
	Address  string `json:"address"` // of the first node
	Version  string `json:"version,omitempty"`
	Primary  int    `json:"primaries"`
	Replicas int    `json:"replicas"`
	Local    bool   `json:"on_this_machine"`

	Commands float64 `json:"-"` // a second, in the last seconds; -1 if it does not say
}

// Describe describes a Redis, as far as it lets its user know.
func Describe(ctx context.Context, client redis.UniversalClient) (s Server) {
	var mu sync.Mutex
	s.Commands = -1
	_ = eachPrimary(ctx, client, func(ctx context.Context, node *redis.Client) error {
		info, _ := redisfacts.Info(ctx, node) // may not be allowed
		mu.Lock()
		defer mu.Unlock()
		s.Primary++
		if address := node.Options().Addr; s.Address == "" || address < s.Address {
			s.Address, s.Version, s.Local = address, info["redis_version"], local(node.Options())
		}
		replicas, _ := strconv.Atoi(info["connected_slaves"])
		s.Replicas += replicas
		rate, _ := strconv.ParseFloat(info["instantaneous_ops_per_sec"], 64)
		if info != nil {
			s.Commands = max(s.Commands, 0) + rate
		}
		return nil
	})
	return s
}

// eachPrimary calls f for each primary of a Cluster, or for the server.
func eachPrimary(ctx context.Context, client redis.UniversalClient, f func(context.Context, *redis.Client) error) error {
	switch c := client.(type) {
	case *redis.ClusterClient:
		return c.ForEachMaster(ctx, f)
	case *redis.Client:
		return f(ctx, c)
	}
	return fmt.Errorf("a client of type %T", client)
}

// local reports whether a server is on this machine.
func local(o *redis.Options) bool {
	if o.Network == "unix" {
		return true
	}
	host, _, err := net.SplitHostPort(o.Addr)
	if err != nil {
		return false
	}
	hosts, err := net.LookupHost(host)
	if err != nil {
		return false
	}
	own, _ := net.InterfaceAddrs()
	return slices.ContainsFunc(hosts, func(host string) bool {
		ip := net.ParseIP(host)
		return ip.IsLoopback() || slices.ContainsFunc(own, func(a net.Addr) bool {
			network, ok := a.(*net.IPNet)
			return ok && network.IP.Equal(ip)
		})
	})
}

// A server is a Redis whose use of its processor is asked for.
type server struct {
	admin  redis.UniversalClient
	prefix string
}

// ready returns an error if the keys of a run could not be deleted.
func (s *server) ready(ctx context.Context) error {
	err := eachPrimary(ctx, s.admin, func(ctx context.Context, node *redis.Client) error {
		return errors.Join(node.Ping(ctx).Err(), node.Scan(ctx, 0, s.pattern(), 1).Err(), node.Unlink(ctx, s.prefix).Err())
	})
	if err != nil && redisfacts.NoRight(err.Error()) {
		return fmt.Errorf("the Redis user may not run the benchmark: grant it +ping +scan +unlink and the keys ~limit-bench-*, besides what programs need: %w", err)
	}
	// A Cluster redirects a key of another node, which shows that it may be deleted.
	if err != nil && !strings.Contains(err.Error(), "MOVED ") {
		return fmt.Errorf("no answer from Redis: %w", err)
	}
	return nil
}

func (s *server) pattern() string { return s.prefix + "*" } // the prefix has no special characters

// cleanTime bounds the search for keys. SCAN walks over all keys of all programs.
const cleanTime = 2 * time.Minute

// clean deletes the keys of all runs, also after ctx has ended.
func (s *server) clean(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
	defer cancel()
	err := eachPrimary(ctx, s.admin, func(ctx context.Context, node *redis.Client) error {
		for cursor := uint64(0); ; {
			keys, next, err := node.Scan(ctx, cursor, s.pattern(), 1000).Result()
			if err != nil {
				return err
			}
			// One command for each key, since they may be in different slots.
			if _, err := node.Pipelined(ctx, func(p redis.Pipeliner) error {
				for _, key := range keys {
					p.Unlink(ctx, key)
				}
				return nil
			}); err != nil {
				return err
			}
			if cursor = next; cursor == 0 {
				return nil
			}
		}
	})
	if err != nil {
		return fmt.Errorf("the keys of the benchmark could not all be deleted: run redis-cli --scan --pattern '%s' | xargs -r -n 1 redis-cli unlink, or wait until they expire: %w", s.pattern(), err)
	}
	return nil
}

// roundTrip returns the median time of a PING, of those within a time.
func (s *server) roundTrip(ctx context.Context, key string, within time.Duration) time.Duration {
	node, ok := s.admin.(*redis.Client)
	if c, is := s.admin.(*redis.ClusterClient); is {
		var err error
		node, err = c.MasterForKey(ctx, key)
		ok = err == nil
	}
	var took []time.Duration
	for begin := time.Now(); ok && (len(took) < 10 || time.Since(begin) < within) && ctx.Err() == nil; {
		start := time.Now()
		if node.Ping(ctx).Err() != nil {
			break
		}
		took = append(took, time.Since(start))
	}
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// A usage is what a server has used so far.
type usage struct {
	at          time.Time
	processor   time.Duration // of the thread that runs commands, or of all if it does not say
	calls       float64       // of scripts
	microsCalls float64       // that they took
}

// usage returns the usage of each primary that says it, by address.
func (s *server) usage(ctx context.Context) map[string]usage {
	var mu sync.Mutex
	all := make(map[string]usage)
	_ = eachPrimary(ctx, s.admin, func(ctx context.Context, node *redis.Client) error {
		cpu, err := node.Info(ctx, "cpu").Result()
		if err != nil {
			return nil // a server that does not say it is left out
		}
		u := usage{at: time.Now()}
		commands, _ := node.Info(ctx, "commandstats").Result()
		seconds := func(name string) float64 {
			n, _ := strconv.ParseFloat(redisfacts.Lines(cpu)[name], 64)
			return n
		}
		sum := seconds("used_cpu_sys_main_thread") + seconds("used_cpu_user_main_thread")
		if sum == 0 {
			sum = seconds("used_cpu_sys") + seconds("used_cpu_user")
		}
		u.processor = time.Duration(sum * float64(time.Second))
		for field := range strings.SplitSeq(redisfacts.Lines(commands)["cmdstat_evalsha"], ",") {
			name, value, _ := strings.Cut(field, "=")
			n, _ := strconv.ParseFloat(value, 64)
			switch name {
			case "calls":
				u.calls = n
			case "usec":
				u.microsCalls = n
			}
		}
		mu.Lock()
		defer mu.Unlock()
		all[node.Options().Addr] = u
		return nil
	})
	return all
}

// server adds what the servers used in between.
func (r *Run) server(before, after map[string]usage) {
	var calls, micros float64
	for address, b := range before {
		a, ok := after[address]
		if !ok || a.processor < b.processor || a.calls < b.calls { // it was restarted
			continue
		}
		r.ServerBusy = max(r.ServerBusy, (a.processor-b.processor).Seconds()/a.at.Sub(b.at).Seconds())
		calls += a.calls - b.calls
		micros += a.microsCalls - b.microsCalls
	}
	if calls > 0 {
		r.PerCall = float64(r.Decisions) / calls
		r.Script = Micros(micros / calls * float64(time.Microsecond))
	}
}

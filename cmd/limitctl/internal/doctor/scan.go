package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/cmd/limitctl/internal/keyscan"
)

const scanTime = 30 * time.Second // for all nodes

// scan reads up to o.Keys of the library's keys on the primaries. It leaves out those that
// are no quotas.
func scan(ctx context.Context, clients []*redis.Client, nodes []Node, o RedisOptions) (all Keys) {
	all.prefix = o.Prefix
	if o.Keys == 0 {
		return Keys{Err: "--keys 0"}
	}
	ctx, cancel := context.WithTimeout(ctx, scanTime)
	defer cancel()
	var primaries []int
	for i := range nodes {
		if nodes[i].Err == "" && !nodes[i].replica() {
			primaries = append(primaries, i)
		}
	}
	if len(primaries) == 0 {
		return Keys{Err: "no primary answers"}
	}
	for _, i := range primaries {
		s := &keyscan.Scan{Prefix: o.Prefix, Most: (o.Keys + len(primaries) - 1) / len(primaries), Page: all.look}
		more, err := s.Run(ctx, clients[i])
		all.More = all.More || more
		if err != nil {
			all.Err = fmt.Sprintf("SCAN: %v (%s)", err, nodes[i].Addr)
			return all
		}
	}
	slices.SortFunc(all.Found, func(a, b Key) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// isOther reports whether a key of the library is no quota: a ban, an override or a pushed
// policy of package control, or the list of processes that share the Redis. Doctor never
// proposes to delete those.
func isOther(prefix, name string) bool {
	return strings.HasPrefix(name, prefix+":control:{") || name == prefix+":sharers"
}

// look reads the facts of keys in one round trip, and adds them.
func (k *Keys) look(ctx context.Context, client redis.Cmdable, names []string) error {
	names = slices.DeleteFunc(names, func(name string) bool { return isOther(k.prefix, name) })
	if len(names) == 0 {
		return nil
	}
	type asked struct {
		kind  *redis.StatusCmd
		ttl   *redis.DurationCmd
		size  *redis.IntCmd
		first *redis.StringCmd
	}
	replies := make([]asked, len(names))
	// Each reply has its own error, which is checked below.
	_, _ = client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, name := range names {
			replies[i] = asked{p.Type(ctx, name), p.PTTL(ctx, name), p.StrLen(ctx, name), p.GetRange(ctx, name, 0, 0)}
		}
		return nil
	})
	for i, name := range names {
		r := replies[i]
		for _, err := range []error{r.kind.Err(), r.ttl.Err(), r.size.Err(), r.first.Err()} {
			switch {
			case err == nil, redis.HasErrorPrefix(err, "WRONGTYPE"):
			case redis.HasErrorPrefix(err, "MOVED"), redis.HasErrorPrefix(err, "ASK"): // it has migrated
			default:
				return err
			}
		}
		if r.kind.Err() != nil || r.ttl.Err() != nil || r.kind.Val() == "none" || r.ttl.Val() == -2 {
			continue // it has expired
		}
		key := Key{Name: name, Type: r.kind.Val(), TTL: r.ttl.Val(), Size: r.size.Val()}
		if first := r.first.Val(); first != "" {
			key.First = first[0]
		} else if key.Type == "string" && key.Size > 0 {
			continue // it expired in between
		}
		k.Found = append(k.Found, key)
	}
	return nil
}

package doctor

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	scanCount  = 200              // keys in one call of SCAN
	scanFutile = 100              // keys scanned for each key to check: most may belong to other programs
	scanTime   = 30 * time.Second // for all nodes
)

// scan reads up to o.Keys of the library's keys on the primaries.
// Those of package control are noted instead.
func scan(ctx context.Context, clients []*redis.Client, nodes []Node, o RedisOptions, documents *Control) Keys {
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
	var all Keys
	each := (o.Keys + len(primaries) - 1) / len(primaries)
	for _, i := range primaries {
		keys := scanNode(ctx, clients[i], o.Prefix, each, documents)
		all.Found = append(all.Found, keys.Found...)
		all.More = all.More || keys.More
		if keys.Err != "" {
			all.Err = keys.Err + " (" + nodes[i].Addr + ")"
			return all
		}
	}
	slices.SortFunc(all.Found, func(a, b Key) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// scanNode reads up to most keys of a node.
func scanNode(ctx context.Context, client *redis.Client, prefix string, most int, documents *Control) Keys {
	var keys Keys
	seen := make(map[string]bool)
	cursor, looked := uint64(0), 0
	for {
		names, next, err := client.Scan(ctx, cursor, literal(prefix)+":*", scanCount).Result()
		if err != nil {
			keys.Err = "SCAN: " + err.Error()
			return keys
		}
		looked += scanCount
		cursor = next
		names = slices.DeleteFunc(names, func(name string) bool {
			again := seen[name] // SCAN may repeat a key
			seen[name] = true
			if !again && isControl(prefix, name) {
				documents.note(prefix, name)
				return true
			}
			return again
		})
		if room := most - len(keys.Found); len(names) > room {
			names, keys.More = names[:room], true
		}
		if keys.Err = look(ctx, client, names, &keys); keys.Err != "" || cursor == 0 {
			return keys
		}
		if len(keys.Found) >= most || looked >= max(scanCount, most*scanFutile) {
			keys.More = true
			return keys
		}
	}
}

// literal escapes the characters of a SCAN pattern.
func literal(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}

// look reads the facts of keys in one round trip, and adds them.
func look(ctx context.Context, client *redis.Client, names []string, keys *Keys) (problem string) {
	if len(names) == 0 {
		return ""
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
				return err.Error()
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
		keys.Found = append(keys.Found, key)
	}
	return ""
}

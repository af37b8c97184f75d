package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/cmd/limitctl/internal/keyscan"
	"github.com/routelimit/limit/cmd/limitctl/internal/words"
	"github.com/routelimit/limit/lua"
)

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

const scanTime = 30 * time.Second // for all nodes

// scan reads up to o.Keys of the library's keys on the primaries.
func scan(ctx context.Context, nodes []Node, o RedisOptions) (all Keys) {
	if o.Keys == 0 {
		return Keys{Err: "--keys 0"}
	}
	ctx, cancel := context.WithTimeout(ctx, scanTime)
	defer cancel()
	primaries := slices.DeleteFunc(slices.Clone(nodes), func(n Node) bool { return n.Err != "" || n.replica() })
	if len(primaries) == 0 {
		return Keys{Err: "no primary answers"}
	}
	for _, n := range primaries {
		s := &keyscan.Scan{Prefix: o.Prefix, Most: (o.Keys + len(primaries) - 1) / len(primaries), Page: all.look}
		more, err := s.Run(ctx, n.client)
		all.More = all.More || more
		if err != nil {
			all.Err = fmt.Sprintf("SCAN: %v (%s)", err, n.Addr)
			return all
		}
	}
	slices.SortFunc(all.Found, func(a, b Key) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// look reads the facts of keys in one round trip, and adds them.
func (k *Keys) look(ctx context.Context, client redis.Cmdable, names []string) error {
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
			migrated := redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK")
			if err != nil && !migrated && !redis.HasErrorPrefix(err, "WRONGTYPE") {
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

// What the library has stored.

// keyCheck returns the result for the keys that satisfy bad. A failure has a command
// that deletes each key with a plain name.
func (f *RedisFacts) keyCheck(bad func(Key) bool, verdict Verdict, good, fix string) Finding {
	if f.Keys.Err != "" {
		return Skipped.because("%s", f.Keys.Err)
	}
	if len(f.Keys.Found) == 0 {
		return OK.because("no keys")
	}
	found := slices.DeleteFunc(slices.Clone(f.Keys.Found), func(k Key) bool { return !bad(k) })
	if len(found) == 0 {
		return OK.because("%s (%s checked)", good, words.Count(int64(len(f.Keys.Found)), "key"))
	}
	var names []string
	fixes := []string{fix}
	for _, k := range found[:min(3, len(found))] {
		names = append(names, words.Quote(k.Name))
		if verdict == Fail && plainName(k.Name) {
			fixes = append(fixes, f.unlink(k.Name))
		}
	}
	if len(found) > len(names) {
		names = append(names, "…")
	}
	return verdict.because("%s: %s", words.Count(int64(len(found)), "key"), strings.Join(names, ", ")).change(fixes...)
}

// plainName reports whether a shell takes a name literally, and the library may have made it.
func plainName(name string) bool {
	return len(name) < 1000 && words.Plain(name, "{}%/._~:@=+,-")
}

func (f *RedisFacts) unlink(name string) string {
	options := ""
	if f.Cluster {
		options = "-c "
	}
	if f.DB != 0 {
		options += fmt.Sprintf("-n %d ", f.DB)
	}
	return complete(f, "redis-cli "+options+"UNLINK '"+name+"'", f.Nodes[0].Addr)
}

func keysFound(f *RedisFacts) Finding {
	if f.Keys.Err != "" {
		return Skipped.because("%s", f.Keys.Err)
	}
	if len(f.Keys.Found) == 0 && !f.Keys.More {
		return Skipped.because("no keys under %s: nothing was counted lately, or the programs use another prefix (--prefix)", words.Quote(f.Prefix))
	}
	policies := make(map[string]int)
	var largest Key
	for _, k := range f.Keys.Found {
		if name, ok := lua.ParseKey(f.Prefix, k.Name); ok && name.Rule != "" { // a token has none
			policies[name.Policy]++
		}
		if k.Size > largest.Size {
			largest = k
		}
	}
	found := words.Count(int64(len(f.Keys.Found)), "key") + " under " + words.Quote(f.Prefix)
	if f.Keys.More {
		found += ", and more that were not checked (--keys)"
	}
	if len(policies) > 0 {
		names := slices.SortedFunc(maps.Keys(policies), func(a, b string) int {
			return cmp.Or(policies[b]-policies[a], cmp.Compare(a, b))
		})
		var parts []string
		for _, name := range names[:min(5, len(names))] {
			parts = append(parts, fmt.Sprintf("%s %d", words.Quote(name), policies[name]))
		}
		if len(names) > 5 {
			parts = append(parts, fmt.Sprintf("%d others", len(names)-5))
		}
		found += "; by policy: " + strings.Join(parts, ", ")
	}
	if largest.Size > 0 {
		found += fmt.Sprintf("; the largest has %s: %s", words.Size(largest.Size), words.Quote(largest.Name))
	}
	return OK.because("%s", found)
}

func keysTTL(f *RedisFacts) Finding {
	immortal := func(k Key) bool {
		name, _ := lua.ParseKey(f.Prefix, k.Name)
		return name.Version != "" && k.TTL < 0
	}
	return f.keyCheck(immortal, Fail, "all keys of the library expire",
		"delete them, and find out what wrote them: every key of the library expires")
}

// current reports whether a key has the format of this version.
func (f *RedisFacts) current(k Key) bool {
	_, ok := lua.ParseKey(f.Prefix, k.Name)
	return ok
}

func keysType(f *RedisFacts) Finding {
	return f.keyCheck(func(k Key) bool { return f.current(k) && k.Type != "string" }, Fail, "all are strings",
		"delete them, and find out what else writes under this prefix")
}

func keysForm(f *RedisFacts) Finding {
	return f.keyCheck(func(k Key) bool { return f.current(k) && k.Type == "string" && !lua.IsState(k.First, k.Size) }, Fail, "all have a known format",
		"delete them, unless the programs are newer than this limitctl, which does not know later formats")
}

func keysVersion(f *RedisFacts) Finding {
	return f.keyCheck(func(k Key) bool { return !f.current(k) }, Warn, "all have names of this version",
		"let keys of an older version expire, and delete those that never do; keep other programs' keys under another prefix")
}

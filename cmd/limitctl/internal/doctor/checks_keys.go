package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/routelimit/limit/cmd/limitctl/internal/words"
	"github.com/routelimit/limit/lua"
)

// What the library has stored.

// keyCheck returns the result for the keys that satisfy bad. A failure has a command
// that deletes each key with a plain name.
func (f *RedisFacts) keyCheck(bad func(Key) bool, verdict Verdict, good, fix string) result {
	if f.Keys.Err != "" {
		return skipped("%s", f.Keys.Err)
	}
	if len(f.Keys.Found) == 0 {
		return ok("no keys")
	}
	const shown = 3
	var names, commands []string
	count := 0
	for _, k := range f.Keys.Found {
		if !bad(k) {
			continue
		}
		if count++; count > shown {
			continue
		}
		names = append(names, words.Quote(k.Name))
		if verdict == Fail && plainName(k.Name) {
			commands = append(commands, f.unlink(k.Name))
		}
	}
	if count == 0 {
		return ok("%s (%s checked)", good, words.Count(int64(len(f.Keys.Found)), "key"))
	}
	list := strings.Join(names, ", ")
	if count > shown {
		list += ", …"
	}
	return verdict.because("%s: %s", words.Count(int64(count), "key"), list).change(fix).change(commands...)
}

// plainName reports whether a shell takes a name literally, and the library may have made it.
func plainName(name string) bool {
	return len(name) < 1000 && words.Plain(name, "{}%/._~:@=+,-")
}

func (f *RedisFacts) unlink(name string) string {
	command := "redis-cli "
	if f.Cluster {
		command += "-c "
	}
	if f.DB != 0 {
		command += fmt.Sprintf("-n %d ", f.DB)
	}
	return complete(f, command+"UNLINK '"+name+"'", f.Nodes[0].Addr)
}

func keysFound(f *RedisFacts) result {
	if f.Keys.Err != "" {
		return skipped("%s", f.Keys.Err)
	}
	if len(f.Keys.Found) == 0 && !f.Keys.More {
		return skipped("no keys under %s: nothing was counted lately, or the programs use another prefix (--prefix)", words.Quote(f.Prefix))
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
	return ok("%s", found)
}

func keysTTL(f *RedisFacts) result {
	versioned := func(k Key) bool {
		name, _ := lua.ParseKey(f.Prefix, k.Name)
		return name.Version != ""
	}
	return f.keyCheck(func(k Key) bool { return versioned(k) && k.TTL < 0 }, Fail, "all keys of the library expire",
		"delete them, and find out what wrote them: every key of the library expires")
}

// current reports whether a key has the format of this version.
func (f *RedisFacts) current(k Key) bool {
	_, ok := lua.ParseKey(f.Prefix, k.Name)
	return ok
}

func keysType(f *RedisFacts) result {
	return f.keyCheck(func(k Key) bool { return f.current(k) && k.Type != "string" }, Fail, "all are strings",
		"delete them, and find out what else writes under this prefix")
}

func keysForm(f *RedisFacts) result {
	return f.keyCheck(func(k Key) bool { return f.current(k) && k.Type == "string" && !lua.IsState(k.First, k.Size) }, Fail, "all have a known format",
		"delete them, unless the programs are newer than this limitctl, which does not know later formats")
}

func keysVersion(f *RedisFacts) result {
	return f.keyCheck(func(k Key) bool { return !f.current(k) }, Warn, "all have names of this version",
		"let keys of an older version expire, and delete those that never do; keep other programs' keys under another prefix")
}

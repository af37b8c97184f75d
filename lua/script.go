package lua

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/routelimit/limit/core"
)

//go:embed *.lua
var files embed.FS

// A Script is one of the drivers take.lua, takeone.lua, taketallied.lua, debts.lua, return.lua,
// returnone.lua, settleone.lua, lease.lua, lost.lua, account.lua, reset.lua and token.lua behind
// the files that it needs, and no others: most of the cost of a call that decides one request is
// for functions that a script defines. See also flatten. Or it is one of hold.lua, settle.lua,
// release.lua and extend.lua, around such scripts: see wrap.
type Script struct {
	Text string
	SHA  string // of the text, as EVALSHA wants it
	Hash any    // SHA as an argument, which a call need not allocate

	plain string // the files as they are
}

// Plain returns the files of the script with that SHA, not flattened, or "", for tests that compare
// what the two decide.
func Plain(sha string) (text string) {
	scripts.Range(func(_, known any) bool {
		if s := known.(*Script); s.SHA == sha {
			text = s.plain
		}
		return text == ""
	})
	return text
}

// A file is one of the Lua files. The file of an algorithm is named by its word: that of
// token-bucket is tokenbucket.lua. Lines of comments say what Go has to know of a file:
//
//	-- @needs small.lua            this file goes before
//	-- @value h 26                 values that begin with this byte have 26 bytes,
//	-- @value a 12 4               or 12, 16, 20 and so on
//	-- @debt                       the rest, or up to @return, is for debts.lua only
//	-- @return                     the rest is for return.lua only
//	-- @rare                       see flatten, also for @inline and @each
//	-- @rare without ring.lua      only in scripts that do not have this file
//
// A line of code that ends in "-- @extra" is for charges with Reserve, and left out where
// there are none; one that ends in "-- @several" is for several asks, or for keys of several
// rules in return.lua, one that ends in "-- @debt" for debts.lua, one that ends in "-- @take"
// for neither of these, one that ends in "-- @tallies" for keys that several algorithms
// charge. One that ends in "-- @many" is not for returnone.lua and settleone.lua, where one that
// ends in "-- @batch" returns nothing, for another script to go on. One that ends in "-- @ring" is
// not for returnone.lua, and one that ends in "-- @settle" only for settleone.lua.
type file struct {
	text   [3]string   // of each purpose: that of taking is in all scripts
	needs  [3][]string // of each purpose
	values []value
}

// The purposes of a script.
const (
	taking = iota
	owing
	returning
)

// A value is a form of stored values: its first byte and its sizes.
type value struct {
	first      byte
	size, step int64
}

// parsed returns the embedded files by their names.
var parsed = sync.OnceValue(func() map[string]*file {
	entries, err := files.ReadDir(".")
	if err != nil {
		panic(err) // the directory is embedded
	}
	all := make(map[string]*file)
	for _, entry := range entries {
		text, err := files.ReadFile(entry.Name())
		if err != nil {
			panic(err)
		}
		if all[entry.Name()], err = parse(string(text)); err != nil {
			panic(fmt.Sprintf("lua: %s: %v", entry.Name(), err))
		}
	}
	return all
})

// parse reads the lines of a file that are for Go.
func parse(text string) (*file, error) {
	f, purpose := &file{}, taking
	for line := range strings.Lines(text) {
		directive, ok := strings.CutPrefix(strings.TrimSpace(line), "-- @")
		words := strings.Fields(directive)
		unknown := ok && len(words) == 0
		switch {
		case !ok || unknown:
		case directive == "debt":
			purpose = owing
			continue
		case directive == "return":
			purpose = returning
			continue
		case words[0] == "rare" && (len(words) == 1 || len(words) == 3 && words[1] == "without"): // for flatten
		case words[0] == "needs" && len(words) == 2:
			f.needs[purpose] = append(f.needs[purpose], words[1])
		case words[0] == "value" && len(words) > 2:
			v := value{first: words[1][0]}
			n, _ := fmt.Sscan(strings.Join(words[2:], " "), &v.size, &v.step)
			f.values, unknown = append(f.values, v), n == 0
		default:
			unknown = true
		}
		if unknown {
			return nil, fmt.Errorf("unknown line %q", line)
		}
		f.text[purpose] += line
	}
	return f, nil
}

// fileOf returns the name of the file of an algorithm.
func fileOf(a core.Algorithm) string { return strings.ReplaceAll(a.String(), "-", "") + ".lua" }

// A selection is the files of a script in their order.
type selection struct {
	names   []string
	purpose int
	extra   bool     // whether the lines with @extra are left in
	several bool     // whether those with @several are
	tallies bool     // whether those with @tallies are, and the texts for debts
	one     bool     // whether it is for returnone.lua or settleone.lua: without those with @many and @batch
	settles bool     // whether it is for settleone.lua: with those with @ring and @settle
	told    []string // files of algorithms that only count what others take
}

// add adds a file behind those that it needs.
func (s *selection) add(name string) {
	if slices.Contains(s.names, name) {
		return
	}
	f := parsed()[name]
	if f == nil {
		panic(fmt.Sprintf("lua: there is no %s", name))
	}
	for _, purpose := range s.purposes() {
		for _, needed := range f.needs[purpose] {
			s.add(needed)
		}
	}
	s.names = append(s.names, name)
}

// purposes returns those whose texts the script has.
func (s *selection) purposes() []int {
	if s.tallies && s.purpose == returning {
		return []int{taking, owing, returning}
	}
	if s.tallies {
		return []int{taking, owing}
	}
	return slices.Compact([]int{taking, s.purpose})
}

// addAlgorithms adds the files of the algorithms of n quotas. Their order is that
// of the algorithms, so that rules in another order have the same script.
func (s *selection) addAlgorithms(n int, quota func(i int) *core.Quota) {
	for _, a := range core.Algorithms() {
		for i := range n {
			q := quota(i)
			if q.Algorithm != a {
				continue
			}
			s.add(fileOf(a))
			if a == core.SlidingLog && q.Limit > stringMost && s.purpose == taking {
				s.add("ring.lua")
			}
		}
	}
}

// madeSmall is what a file that is told gets an empty table for: nothing decides by it.
var madeSmall = regexp.MustCompile(`= small\(.*\)`)

// scripts holds the scripts that have been asked for: as many as there are mixes of
// algorithms in use.
var scripts sync.Map // of *Script

// once returns the script of a key, which is made the first time.
func once(key any, script func() *Script) *Script {
	known, ok := scripts.Load(key)
	if !ok {
		known, _ = scripts.LoadOrStore(key, script())
	}
	return known.(*Script)
}

// join returns the script of a driver and the files that it needs.
func (s *selection) join(driver string) *Script {
	s.names = append(s.names, driver)
	key := fmt.Sprint(s.names, s.extra, s.several, s.tallies, s.told) // a driver has one purpose, and is one or not
	return once(key, func() *Script {
		var b strings.Builder
		for _, name := range s.names {
			for _, purpose := range s.purposes() {
				for line := range strings.Lines(parsed()[name].text[purpose]) {
					if slices.Contains(s.told, name) {
						line = madeSmall.ReplaceAllString(line, "= {}")
					}
					b.WriteString(s.line(line))
				}
			}
		}
		return newScript(flatten(b.String()), b.String())
	})
}

func newScript(text, plain string) *Script {
	sum := sha1.Sum([]byte(text))
	sha := hex.EncodeToString(sum[:])
	return &Script{Text: text, SHA: sha, Hash: sha, plain: plain}
}

// line returns what becomes of a line of a file.
func (s *selection) line(line string) string {
	if name, ok := strings.CutPrefix(line, "-- @rare without "); ok {
		if slices.Contains(s.names, strings.TrimSuffix(name, "\n")) {
			return ""
		}
		return rareMark
	}
	_, mark, _ := strings.Cut(line, " -- @")
	switch strings.TrimSuffix(mark, "\n") {
	case "extra":
		return only(s.extra, line)
	case "several":
		return only(s.several, line)
	case "debt":
		return only(s.purpose == owing || s.tallies, line)
	case "take":
		return only(s.purpose == taking, line)
	case "tallies":
		return only(s.tallies, line)
	case "many":
		return only(!s.one, line)
	case "ring":
		return only(!s.one || s.settles, line)
	case "settle":
		return only(s.settles, line)
	case "batch":
		return only(!s.one, line) + only(s.one, "return\n")
	}
	return line
}

func only(wanted bool, line string) string {
	if wanted {
		return line
	}
	return ""
}

// newSelection returns the files that every script has.
func newSelection(purpose int) *selection {
	return &selection{names: []string{"bytes.lua", "state.lua"}, purpose: purpose}
}

// LostScript returns the script that finds keys that have lost their data.
func LostScript() *Script { return newSelection(taking).join("lost.lua") }

// TokenScript returns the script that reads a token: see [TokenKey].
func TokenScript() *Script { return newSelection(taking).join("token.lua") }

// ResetScript returns the script that deletes the keys of a rule.
func ResetScript() *Script { return newSelection(taking).join("reset.lua") }

// LeaseScript returns the script that renews and releases leases.
func LeaseScript() *Script { return leaseScript(newSelection(taking)) }

func leaseScript(s *selection) *Script {
	s.add(fileOf(core.Concurrency))
	return s.join("lease.lua")
}

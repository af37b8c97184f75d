package lua

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// A Name has the parts of a key of Redis: see [Key].
type Name struct {
	Version string // of the stored form: digits
	Policy  string // as the program gave it, like those below: of this version only
	Rule    string
	Variant string
	Key     string
	Part    int  // the number in the tag of a part, see [Part]; 0 if the policy is not in parts
	Beside  bool // whether it is beside the state, see [ReturnedKey], [MarkKey], [TokenKey] and [HoldKeys]
}

// ParseKey reads a key of Redis that [Key], [ReturnedKey], [MarkKey], [TokenKey] or [HoldKeys] made
// with the prefix. It reports false for any other key. If that has the prefix and a version, such
// as an older one, the Version is set.
func ParseKey(prefix, key string) (Name, bool) {
	rest, ok := strings.CutPrefix(key, prefix+":")
	if !ok {
		return Name{}, false
	}
	number, rest, ok := strings.Cut(rest, ":")
	if !ok || number == "" || strings.Trim(number, "0123456789") != "" {
		return Name{}, false
	}
	name := Name{Version: number}
	word, tagged, beside := strings.Cut(rest, ":{")
	if beside = beside && slices.Contains([]string{"returned", "mark", "token", "held", "ends"}, word); beside {
		rest = "{" + tagged
	}
	rest, ok = strings.CutPrefix(rest, "{")
	tag, rest, closed := strings.Cut(rest, "}:")
	rule, rest, ended := strings.Cut(rest, ":")
	rule, variant, varied := strings.Cut(rule, "@")
	if number != version || !ok || !closed || !ended || varied && variant == "" {
		return name, false
	}
	tag, digits, parted := strings.Cut(tag, ":")
	part, err := strconv.Atoi(digits)
	if parted && (err != nil || part < 1 || strconv.Itoa(part) != digits) {
		return name, false
	}
	var parts [4]string
	for i, part := range []struct {
		text  string
		plain *[256]bool
	}{{tag, &partBytes}, {rule, &partBytes}, {variant, &partBytes}, {rest, &keyBytes}} {
		if i == 0 && part.text == "%" {
			continue // the empty policy
		}
		if parts[i], ok = unescape(part.text, part.plain); !ok || i == 0 && parts[i] == "" {
			return name, false
		}
	}
	return Name{Version: number, Policy: parts[0], Rule: parts[1], Variant: parts[2], Key: parts[3], Part: part, Beside: beside}, true
}

// unescape undoes escape. It reports false for a string that escape never returns.
func unescape(s string, plain *[256]bool) (string, bool) {
	text, err := url.PathUnescape(s)
	return text, err == nil && escape(text, plain) == s
}

// IsState reports whether a value of size bytes that begins with first can be the state of a rule,
// by the forms that the headers of the scripts have.
func IsState(first byte, size int64) bool {
	for _, f := range parsed() {
		for _, v := range f.values {
			if v.first == first {
				return size == v.size || v.step > 0 && size > v.size && (size-v.size)%v.step == 0
			}
		}
	}
	return false
}

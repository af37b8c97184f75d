package lua

import (
	"strings"

	"github.com/routelimit/limit/core"
)

// The keys of Redis are
//
//	limit:1:{POST%20/update}:per-ip-2s:203.0.113.9
//
// prefix, version of the stored form, policy as the hash tag, rule, key. A variant
// follows its rule, as in per-ip-2s@gold. Bytes that could end a part early, or are not
// printable ASCII, are escaped as in a URL. So distinct policies, rules, variants and
// keys have distinct keys of Redis, and no user's key can change the tag. A part of a
// policy has its own tag, such as {POST%20/update:17}.
const version = "1"

// KeyPrefix returns what the keys of a rule's states begin with, whatever their Key.
func KeyPrefix(prefix string, c *core.Charge) string {
	tag := escape(c.Policy, &partBytes)
	if tag == "" {
		tag = "%" // Redis takes an empty tag for none
	}
	prefix, part, parted := strings.Cut(prefix, "{")
	if parted {
		tag = tagOf(tag, part)
	}
	rule := escape(c.Rule, &partBytes)
	if c.Variant != "" {
		rule += "@" + escape(c.Variant, &partBytes)
	}
	return prefix + ":" + version + ":{" + tag + "}:" + rule + ":"
}

// Key returns the key of Redis that holds the state of a charge.
func Key(prefix string, c *core.Charge) string {
	return KeyPrefix(prefix, c) + escape(c.Key, &keyBytes)
}

// ReturnedKey returns the key of Redis that holds what was given back to a bucket.
func ReturnedKey(prefix string, c *core.Charge) string { return beside(":returned", prefix, c) }

// MarkKey returns the key of Redis that says when a charge was reset, or had lost its data.
func MarkKey(prefix string, c *core.Charge) string { return beside(":mark", prefix, c) }

// TokenKey returns the key of Redis that holds the token of the data beside a key of Redis, in
// the same slot. A process that finds another token than before knows that data was lost.
func TokenKey(prefix, beside string) string {
	_, tag, _ := strings.Cut(beside, "{")
	tag, _, _ = strings.Cut(tag, "}")
	return prefix + ":" + version + ":token:{" + tag + "}::"
}

// HoldKeys returns the keys of Redis that have the holds of a charge, and when they end.
func HoldKeys(prefix string, c *core.Charge) (hash, ends string) {
	return beside(":held", prefix, c), beside(":ends", prefix, c)
}

func beside(word, prefix string, c *core.Charge) string {
	before, _, _ := strings.Cut(prefix, "{")
	return before + ":" + version + word + Key(prefix, c)[len(before)+len(version)+1:]
}

const alphanumeric = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

var (
	partBytes = byteSet(alphanumeric + "/._~-")
	keyBytes  = byteSet(alphanumeric + "/._~-:@=+,")
)

func byteSet(chars string) (set [256]bool) {
	for i := range len(chars) {
		set[chars[i]] = true
	}
	return set
}

// escape writes the bytes of s outside plain as %XX. The '%' is never plain, which makes it
// injective.
func escape(s string, plain *[256]bool) string {
	i := 0
	for i < len(s) && plain[s[i]] {
		i++
	}
	if i == len(s) {
		return s
	}
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	b.WriteString(s[:i])
	for ; i < len(s); i++ {
		if plain[s[i]] {
			b.WriteByte(s[i])
		} else {
			b.WriteByte('%')
			b.WriteByte(hex[s[i]>>4])
			b.WriteByte(hex[s[i]&15])
		}
	}
	return b.String()
}

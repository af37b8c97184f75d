package core

// versions are the longest window and the largest limit of the quotas that charged a key since it
// was new, as one number to keep a [Log] small. Several versions of a rule may charge one key in
// turn. A state that lists times keeps those within the longest window, and of them as many of the
// newest as the largest limit: so each version counts what all of them took.
type versions uint64

const limitBits = 17 // of MaxLog; a MaxWindow has 45

func (v versions) window() int64 { return int64(v >> limitBits) }
func (v versions) limit() int    { return int(v & (1<<limitBits - 1)) }

// versionOf returns the one version of a key that only one quota has charged.
func versionOf(limit, window int64) versions { return versions(window<<limitBits | limit) }

// and returns v with those of o.
func (v versions) and(o versions) versions {
	return versionOf(int64(max(v.limit(), o.limit())), max(v.window(), o.window()))
}

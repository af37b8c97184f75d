package policyfile

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// methods are those that are registered, except ones that no service has, and some that
// caches and UPnP use. A route for another one is more likely a mistake: a pattern without
// a method matches it too.
var methods = strings.Fields("GET HEAD POST PUT PATCH DELETE OPTIONS CONNECT TRACE QUERY PURGE BAN REFRESH " +
	"ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT COPY LABEL LINK LOCK MERGE MKACTIVITY MKCALENDAR MKCOL MKREDIRECTREF MKWORKSPACE MOVE " +
	"NOTIFY ORDERPATCH PROPFIND PROPPATCH REBIND REPORT SEARCH M-SEARCH SUBSCRIBE UNBIND UNCHECKOUT UNLINK UNLOCK UNSUBSCRIBE UPDATE UPDATEREDIRECTREF VERSION-CONTROL")

// unmatchable returns why hardly any request can match a pattern, although a ServeMux
// takes it as it takes any literal text: a pattern of another router, for example. The
// problem says what to write instead; it is "" if there is none.
func unmatchable(pattern string) (offset int, problem string) {
	c := &patternCheck{text: pattern}
	c.check()
	if c.problem == "" {
		return 0, ""
	}
	if other := c.repaired.String(); other != pattern && validPattern(other) {
		return c.offset, c.problem + ": write " + quoted(other)
	}
	return c.offset, c.problem + ": " + c.instead
}

// validPattern reports whether nothing is wrong with a pattern.
func validPattern(pattern string) bool {
	c := &patternCheck{text: pattern}
	c.check()
	return c.problem == "" && handle(http.NewServeMux(), pattern).why == ""
}

// A patternCheck finds the first problem of a pattern, and writes a pattern without any.
type patternCheck struct {
	text     string
	offset   int
	problem  string
	instead  string // what to do if repaired is no pattern
	repaired strings.Builder
	names    []string // of the wildcards that repaired has in place of others
}

func (c *patternCheck) wrong(offset int, instead, format string, args ...any) {
	if c.problem == "" {
		c.offset, c.problem, c.instead = offset, fmt.Sprintf(format, args...), instead
	}
}

func (c *patternCheck) check() {
	text := strings.Trim(c.text, " \t")
	start := strings.Index(c.text, text)
	switch {
	case text == "":
		return // the ServeMux says it
	case start > 0:
		c.wrong(0, "remove it", "a blank before the pattern is read as a part of it")
	case len(text) < len(c.text):
		c.wrong(len(text), "remove it", "a blank behind the pattern is read as a part of it")
	}
	if i := strings.IndexAny(text, " \t"); i >= 0 {
		c.method(start, text[:i])
		rest := strings.TrimLeft(text[i:], " \t")
		start, text = start+len(text)-len(rest), rest
	}
	slash := strings.IndexByte(text, '/')
	if slash < 0 {
		c.wrong(start, "begin the path with /", "a path begins with a slash")
		start, text, slash = start-1, "/"+text, 0
	}
	if after, scheme := strings.CutPrefix(text[slash:], "//"); scheme && strings.HasSuffix(text[:slash], ":") {
		c.wrong(start, "write the host and the path", "a pattern has no scheme")
		start, text = start+slash+2, after
		if slash = strings.IndexByte(text, '/'); slash < 0 {
			text, slash = text+"/", len(text)
		}
	}
	c.host(start, text[:slash])
	c.path(start+slash, text[slash:])
}

func (c *patternCheck) method(start int, method string) {
	upper := strings.ToUpper(method)
	switch {
	case upper == "ANY" || upper == "ALL" || upper == "*":
		c.wrong(start, "leave the method out", "a pattern for all methods has none")
		return
	case !slices.Contains(methods, upper):
		c.wrong(start, "write one method such as GET, or the path alone for all methods", "%s is no method of requests", quoted(method))
	case method != upper:
		c.wrong(start, "write it in capitals", "methods have capitals, so no request has the method %s", quoted(method))
	}
	c.repaired.WriteString(upper + " ")
}

var validHost = regexp.MustCompile(`^[a-z0-9_-]+(\.[a-z0-9_-]+)*$`)

func (c *patternCheck) host(start int, host string) {
	name := strings.TrimSuffix(strings.ToLower(host), ".")
	if i := strings.LastIndexByte(name, ':'); i >= 0 && strings.Trim(name[i+1:], "0123456789") == "" && !strings.Contains(name[:i], ":") {
		name = name[:i]
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	switch {
	case host == "" || err == nil:
	case name != host:
		c.wrong(start, "write the host alone", "a host has no capitals, no port, and no dot at its end here")
	case !validHost.MatchString(host):
		c.wrong(start, "write a whole host such as api.example.com, in ASCII, or the path alone", "%s is no host", quoted(host))
	case !strings.Contains(host, ".") && host != "localhost":
		c.wrong(start, "begin with /", "without a slash before it, %s is read as a host", quoted(host))
		name = "/" + host
	}
	c.repaired.WriteString(name)
}

func (c *patternCheck) path(start int, path string) {
	depth := 0
	for i, b := range []byte(path) { // a query, but not within a wildcard
		switch {
		case b == '{':
			depth++
		case b == '}':
			depth = max(0, depth-1)
		case (b == '?' || b == '#') && depth == 0:
			c.wrong(start+i, "write the path alone", "a route matches paths, without a query")
			path = path[:i]
		}
		if i >= len(path) {
			break
		}
	}
	if path == "" {
		return
	}
	segments, at := strings.Split(path, "/")[1:], start+1
	var kept []string
	for i, segment := range segments {
		last := i == len(segments)-1
		plain, err := url.PathUnescape(segment)
		switch {
		case err != nil:
			c.wrong(at, "write %25 for a percent sign", "%s has a percent sign that begins no byte such as %%20", quoted(segment))
			kept = append(kept, strings.ReplaceAll(segment, "%", "%25"))
		case plain == "." || plain == ".." || plain == "" && !last:
			c.wrong(at, "remove them", "paths are matched without empty parts, . and ..")
			if plain == ".." {
				kept = kept[:max(0, len(kept)-1)]
			}
		default:
			kept = append(kept, c.segment(at, segment, last))
		}
		at += len(segment) + 1
	}
	c.repaired.WriteString("/" + strings.Join(kept, "/"))
}

// segment checks a part of a path between slashes, and returns what to write for it.
func (c *patternCheck) segment(at int, text string, last bool) string {
	if i := strings.IndexAny(text, " \t"); i >= 0 && !strings.Contains(text, "{") {
		c.wrong(at+i, "write %20 for a blank", "a path has no blank")
		text = strings.ReplaceAll(text, " ", "%20")
	}
	inner := strings.Trim(text, "<>[]")
	switch star := strings.IndexByte(text, '*'); {
	case strings.ContainsAny(text, `\^`):
		c.wrong(at, "write a whole part, or {name} for any", "%s is literal text, and no regular expression", quoted(text))
		return c.wildcard("any", false)
	case star >= 0 && !strings.Contains(text, "{"):
		c.wrong(at+star, "write {name} for one part of the path, {name...} for the rest, or %2A for a star", "* is literal text, and no wildcard")
		if name := strings.Trim(text, "*"); star == 0 && last && !strings.Contains(name, ".") {
			return c.wildcard(name, true)
		}
		return c.wildcard("any", false)
	case len(text) > 1 && text[0] == ':':
		c.wrong(at, "write {name}, or %3A for a colon", "%s is literal text, and no wildcard", quoted(text))
		return c.wildcard(text[1:], false)
	case len(text) > 2 && inner == text[1:len(text)-1] && inner != "":
		c.wrong(at, "write {name}", "%s is literal text, and no wildcard", quoted(text))
		return c.wildcard(inner, false)
	case strings.Contains(text, "}") && !strings.Contains(text, "{"):
		c.wrong(at+strings.IndexByte(text, '}'), "write {name}, or %7D for a brace", "} without {")
		return c.wildcard(strings.Trim(text, "}"), false)
	}
	return text
}

// wildcard returns a wildcard with a name like the given one.
func (c *patternCheck) wildcard(name string, rest bool) string {
	name = strings.Map(func(r rune) rune {
		if r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) {
			return r
		}
		return -1
	}, name)
	switch {
	case name == "" && rest:
		name = "rest"
	case name == "" || unicode.IsDigit([]rune(name)[0]):
		name = "any"
	}
	for base, n := name, 2; slices.Contains(c.names, name); n++ {
		name = fmt.Sprint(base, n)
	}
	c.names = append(c.names, name)
	if rest {
		name += "..."
	}
	return "{" + name + "}"
}

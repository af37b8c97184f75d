package limit

import (
	"net/http"
	"net/netip"
	"strings"

	"github.com/routelimit/limit/internal/notice"
)

// A Client is the sender of a request, for [Options].Exempt and [Options].Bar. It has the
// address and the user that the rules are keyed by, so a function cannot take the client
// for another one than the rules do. In tests, set the two fields.
type Client struct {
	Request *http.Request
	Limiter *Limiter // that decides the request; nil means one without options

	of *layer
}

// IP returns the address of the client: that of [Limiter.ClientIP].
func (c Client) IP() netip.Addr {
	if c.Limiter == nil {
		return new(Proxies).ClientIP(c.Request)
	}
	return c.Limiter.ClientIP(c.Request)
}

// User returns the user that [ByUser] resolves: by the [Caller] of the adapter or
// of [Options], without blanks around it. It is "" if the request has no user.
func (c Client) User() string {
	var user string
	switch {
	case c.of != nil:
		user = c.of.who(userPart)
	case c.Limiter != nil && c.Limiter.options.Caller.User != nil:
		user = strings.TrimSpace(c.Limiter.options.Caller.User(c.Request))
	}
	if c.Limiter != nil && c.Limiter.notices.listedUsers.Load() < userlessAfter {
		c.Limiter.noticeListedUsers(user)
	}
	return user
}

// noticeListedUsers warns once functions have asked for the users of so many requests,
// and none had one: what lists say of users has no effect.
func (l *Limiter) noticeListedUsers(user string) {
	n := &l.notices.listedUsers
	if user != "" {
		n.Store(userlessAfter + 1)
	} else if n.Add(1) == userlessAfter {
		notice.Write(l.log(), notice.NoListedUsers, "limit: Exempt or Bar asks for users, and no request had one so far, so entries of users have no effect: "+
			"set Caller.User of limit.Options or of your adapter, and put authentication before the rules", 0, "requests", userlessAfter)
	}
}

package replay

import (
	"slices"
	"strings"
)

// looks are the words of Client.Looks: see Look. They are simple rules about the whole log,
// and not more than hints: each names a client that is worth a look.
var looks = []struct {
	name string
	fits func(c *client) bool
}{
	{"declared bot", func(c *client) bool { return c.bots*2 > c.Requests || c.robots > 0 }},
	{"crawler", func(c *client) bool {
		paths := c.distinctPaths()
		return c.Requests >= 100 && paths >= 100 && (paths*2 >= c.Requests || paths >= 600)
	}},
	{"scanner", func(c *client) bool { return c.probes >= 3 || c.Requests >= 20 && c.missing*2 >= c.Requests }},
	{"password guessing", func(c *client) bool { return c.denied >= 20 && c.denied*2 >= c.Requests }},
	{"flood", func(c *client) bool { return c.Busiest >= 50 }},
	{"script", func(c *client) bool { return c.Requests > 0 && c.scripts == c.Requests }},
}

var (
	botWords    = strings.Fields("bot crawl spider slurp archiver facebookexternalhit preview monitor")
	scriptWords = strings.Fields("curl/ wget/ python go-http-client java/ okhttp libwww httpclient axios node-fetch " +
		"ruby php scrapy aiohttp httpx")
	probeWords = strings.Fields("/.env /.git /.aws /wp-login /wp-admin /xmlrpc.php /phpmyadmin /cgi-bin/ /etc/passwd " +
		"../ /actuator /vendor/phpunit /.ssh /id_rsa /config.json /server-status /boaform /shell")
)

func containsAny(s string, words []string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(s, w) })
}

// looks returns what the requests of a client look like.
func (c *client) looks() (words []string) {
	for _, look := range looks {
		if look.fits(c) {
			words = append(words, look.name)
		}
	}
	return words
}

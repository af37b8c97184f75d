package replay

import (
	"slices"
	"strings"
)

// The words of Client.Looks. They are simple rules about the whole log, and not more
// than hints: each names a client that is worth a look.
const (
	looksBot      = "declared bot"      // the user agent says so, or the client has read /robots.txt
	looksCrawler  = "crawler"           // 100 requests or more, 9 of 10 of them reads, for at least 100 paths and half as many paths as requests
	looksScanner  = "scanner"           // 3 requests for files that only attackers look for, or 20 requests of which half were answered with 400 or 404
	looksGuessing = "password guessing" // 20 answers of 401 or 403, half of all
	looksFlood    = "flood"             // 50 requests in one second
	looksScript   = "script"            // each request by a library for HTTP, or without a user agent
)

var (
	botWords    = []string{"bot", "crawl", "spider", "slurp", "archiver", "facebookexternalhit", "preview", "monitor"}
	scriptWords = []string{"curl/", "wget/", "python", "go-http-client", "java/", "okhttp", "libwww", "httpclient", "axios", "node-fetch", "ruby", "php", "scrapy", "aiohttp", "httpx"}
	probeWords  = []string{"/.env", "/.git", "/.aws", "/wp-login", "/wp-admin", "/xmlrpc.php", "/phpmyadmin", "/cgi-bin/", "/etc/passwd", "../", "/actuator", "/vendor/phpunit", "/.ssh", "/id_rsa", "/config.json", "/server-status", "/boaform", "/shell"}
)

func containsAny(s string, words []string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(s, w) })
}

// looks returns what the requests of a client look like.
func (c *client) looks() (words []string) {
	add := func(word string, when bool) {
		if when {
			words = append(words, word)
		}
	}
	paths := c.distinctPaths()
	add(looksBot, c.bots*2 > c.requests || c.robots > 0)
	add(looksCrawler, c.requests >= 100 && c.reads*10 >= c.requests*9 && paths >= 100 && (paths*2 >= c.requests || paths >= 600))
	add(looksScanner, c.probes >= 3 || c.requests >= 20 && c.missing*2 >= c.requests)
	add(looksGuessing, c.denied >= 20 && c.denied*2 >= c.requests)
	add(looksFlood, c.most >= 50)
	add(looksScript, c.requests > 0 && c.scripts == c.requests)
	return words
}

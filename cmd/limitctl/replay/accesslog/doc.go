// Package accesslog reads the access logs of web servers and proxies as a stream of
// records.
//
//	log, err := accesslog.Open([]string{"/var/log/nginx/access.log*"}, nil)
//	…
//	defer log.Close()
//	for r := log.Next(); r != nil; r = log.Next() {
//		…
//	}
//	stats := log.Stats()
//
// It reads the common, combined and vhost_combined formats of Apache and nginx, any
// nginx log_format, those of Nginx Proxy Manager, the text formats of Traefik and Envoy,
// the HTTP format of HAProxy, the access logs of AWS Application Load Balancers, the W3C
// extended format of IIS and CloudFront, CSV whose first line names the columns, Gin's own
// logger, and JSON lines such as those of Caddy, Traefik, Envoy, HAProxy, Cloudflare Logpush,
// Echo and log/slog, or with any names: see [ParseFormat]. Files may be compressed with gzip
// or zstd. Each file has one format, found from its beginning. What Kubernetes, docker
// compose, syslog and journald write before a line is left out.
//
// Bad lines are counted, and the first few are kept to show: see [Stats]. They are
// never an error.
package accesslog

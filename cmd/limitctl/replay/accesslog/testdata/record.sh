#!/usr/bin/env bash
# Records the logs in this folder again: each server writes its own default format to the stream
# that also has its errors and its start-up lines, and answers the same requests. It needs nginx,
# apache2, haproxy and caddy, such as those of Debian, and binds only loopback ports.
#
#   cmd/limitctl/replay/accesslog/testdata/record.sh [nginx|apache|haproxy|haproxy_json|caddy]...
set -euo pipefail
cd "$(dirname "$0")"
PATH=$PATH:/usr/sbin
port=${PORT:-18080}
dir=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" || true; rm -rf "$dir"' EXIT
trap '' PIPE # a server may close a connection that raw still writes to
mkdir -p "$dir/root/docs"
echo ok >"$dir/root/index.html"
echo ok >"$dir/root/docs/index.html"
echo secret >"$dir/root/denied"
chmod -R a+rX "$dir"

# until_up waits until the server accepts connections.
until_up() {
	for _ in $(seq 100); do
		if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then return; fi
		sleep 0.1
	done
	echo "no server on port $port" >&2
	return 1
}

# raw sends bytes that are no HTTP request, or that curl would not send.
raw() {
	exec 3<>"/dev/tcp/127.0.0.1/$port"
	printf "$1" >&3 2>/dev/null || true
	timeout 2 cat <&3 >/dev/null || true
	exec 3>&-
}

url=http://127.0.0.1:$port
get=(curl -s -o /dev/null -m 5)

# few sends 3 requests.
few() {
	for i in 2 3 4; do "${get[@]}" --interface "127.0.0.$i" -A "client $i" "$url/?n=$i"; done
}

# requests sends 20 requests.
requests() {
	few
	"${get[@]}" "$url/docs"                                    # redirected to /docs/
	"${get[@]}" "$url/docs/"
	"${get[@]}" "$url/missing?q=a%20b&r=%22"
	"${get[@]}" "$url/denied"                                  # an error in the log, where permissions apply
	"${get[@]}" -d 'user=al' "$url/login"
	"${get[@]}" -I "$url/"
	"${get[@]}" -X OPTIONS --request-target '*' "$url/"
	"${get[@]}" -X PURGE "$url/cache"
	"${get[@]}" -u 'a [b] "c:secret' "$url/"                   # a user name with what delimits fields
	"${get[@]}" -A 'quote " backslash \ end' -e 'http://x/"' "$url/"
	"${get[@]}" -A '' -H 'Host: shop.example' -H 'X-Forwarded-For: 203.0.113.7, 198.51.100.2' "$url/"
	"${get[@]}" -g "http://[::1]:$port/?v6"
	"${get[@]}" --path-as-is "$url/a/../../etc/passwd"
	raw 'GET http://other.example/abs?x=1 HTTP/1.1\r\nHost: other.example\r\nConnection: close\r\n\r\n'
	raw '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"\r\n\r\n' # a TLS handshake
	raw 'nonsense\r\n\r\n'
	raw 'GET /bad\xff"path HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n'
}

# record runs a command, and again for a few requests, since a restart writes lines too. It keeps
# what the command writes.
record() {
	local name=$1
	shift
	: >"$dir/$name.log"
	for send in requests few; do
		"$@" > >(cat >>"$dir/$name.log") 2>&1 & # a pipe, as containers have it
		server=$!
		until_up
		"$send"
		kill -TERM "$server"
		wait "$server" || true
		server=
	done
	sed "s#$dir#/srv#g" "$dir/$name.log" >"$name.log"
	echo "$name.log: $(wc -l <"$name.log") lines"
}

nginx() {
	cat >"$dir/nginx.conf" <<-EOF
		daemon off; master_process off; pid $dir/nginx.pid; error_log /dev/stderr notice;
		events {}
		http {
			access_log /dev/stdout;
			client_body_temp_path $dir/t1; proxy_temp_path $dir/t2; fastcgi_temp_path $dir/t3;
			uwsgi_temp_path $dir/t4; scgi_temp_path $dir/t5;
			server {
				listen 127.0.0.1:$port; listen [::1]:$port; root $dir/root;
				location = /denied { deny all; }
			}
		}
	EOF
	record nginx "$(type -P nginx)" -c "$dir/nginx.conf" -e stderr
}

apache() {
	local modules=/usr/lib/apache2/modules
	# The format "combined" is that of Debian's apache2.conf.
	cat >"$dir/apache.conf" <<-EOF
		ServerRoot $dir
		ServerName localhost
		PidFile $dir/apache.pid
		Listen 127.0.0.1:$port
		Listen [::1]:$port
		LoadModule mpm_event_module $modules/mod_mpm_event.so
		LoadModule authz_core_module $modules/mod_authz_core.so
		LoadModule dir_module $modules/mod_dir.so
		ErrorLog /dev/stderr
		User www-data
		Group www-data
		LogFormat "%h %l %u %t \"%r\" %>s %O \"%{Referer}i\" \"%{User-Agent}i\"" combined
		CustomLog /dev/stdout combined
		DocumentRoot $dir/root
		<Location /denied>
			Require all denied
		</Location>
	EOF
	record apache "$(type -P apache2)" -D FOREGROUND -f "$dir/apache.conf"
}

# haproxy takes the format; without one it is that of option httplog.
haproxy() {
	local format=${1:-option httplog} name=${2:-haproxy}
	cat >"$dir/haproxy.cfg" <<-EOF
		global
			log stdout format raw local0
		defaults
			log global
			mode http
			$format
			timeout client 1s
			timeout server 1s
			timeout connect 1s
		frontend web
			bind 127.0.0.1:$port,[::1]:$port
			http-request deny if { path /denied }
			http-request redirect location /docs/ code 301 if { path /docs }
			http-request return status 404 if { path /missing /login }
			default_backend site
		backend dead
			server gone 127.0.0.1:1 check inter 100ms fall 1
		backend site
			http-request return status 200 content-type text/plain string ok
	EOF
	record "$name" "$(type -P haproxy)" -db -f "$dir/haproxy.cfg"
}

# The names are those of the fields in HAProxy's manual, section 8.2.6.
haproxy_json() {
	local item pairs=
	for item in client_ip:%ci client_port:%cp request_date:%tr frontend_name:%f backend_name:%b \
		status_code:%ST bytes_read:%B http_method:%HM http_request_uri:%HU http_version:%HV; do
		pairs+=,\"${item%%:*}\":\"${item#*:}\"
	done
	haproxy "log-format '{${pairs#,}}'" haproxy_json
}

caddy() {
	cat >"$dir/Caddyfile" <<-EOF
		{
			admin off
			auto_https off
		}
		http://:$port {
			bind 127.0.0.1 ::1
			log
			respond /denied 403
			root * $dir/root
			file_server
		}
	EOF
	XDG_DATA_HOME=$dir XDG_CONFIG_HOME=$dir record caddy "$(type -P caddy)" run --adapter caddyfile --config "$dir/Caddyfile"
}

for server in "${@:-nginx apache haproxy haproxy_json caddy}"; do
	for name in $server; do "$name"; done
done

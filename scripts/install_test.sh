#!/bin/sh
# Releases a version in a copy of the tree, and uses it as a new user would, outside
# of the repository: go get of every library and a package that imports its packages,
# go install of every command. Go fetches the modules from the tags of the copy.
#
#	scripts/install_test.sh [-race]  compiles for the race detector, like the tests
set -eu
cd "$(dirname "$0")/.."

tmp=$(mktemp -d)
version=v0.0.0-test.$(date +%s).$$
cache=$(go env GOMODCACHE)
path=github.com/routelimit/limit
# clean removes this version from the module cache, where files are read-only.
clean() {
	grep -ls ":https://$path\$" "$cache"/cache/vcs/*.info | while read -r info; do
		chmod -R u+w "${info%.info}"
		rm -rf "${info%.info}" "${info%.info}.lock" "$info"
	done
	for dir in "$cache/cache/download/github.com/routelimit" "$cache/github.com/routelimit"; do
		[ -d "$dir" ] || continue
		find "$dir" -depth -name "*$version*" -exec chmod -R u+w {} + -exec rm -rf {} +
		find "$dir" -name list -exec sed -i.old "/$version/d" {} \;
		find "$dir" -name list.old -delete
		find "$dir" -name list -empty -delete
		find "$dir" -depth -type d -empty -delete
	done
	rm -rf "$tmp"
}
trap clean EXIT
trap 'exit 130' INT TERM

scripts/release.sh -n "$tmp/copy" "$version" >/dev/null
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="url.file://$tmp/copy.insteadOf" GIT_CONFIG_VALUE_0="https://$path"

configured=$(go env GOPROXY)
local="file://$cache/cache/download"
GOFLAGS="$(go env GOFLAGS) -mod=mod $*"
export GOFLAGS GOWORK=off GOPRIVATE=$path GOBIN="$tmp/bin"

# fetch prints what a go command prints. It takes other modules from the module
# cache, and from the network only if they are not there.
fetch() {
	GOPROXY=$local GOSUMDB=off "$@" 2>"$tmp/log" || GOPROXY=$local,$configured "$@" 2>"$tmp/log" || {
		cat "$tmp/log" >&2
		exit 1
	}
}

git -C "$tmp/copy" tag | while read -r tag; do
	module=$(dirname "$path/$tag")
	printf '\n== %s\n' "$module@$version"
	mkdir "$tmp/program"
	cd "$tmp/program"
	fetch go mod init example.com/program
	fetch go get "$module@$version"
	fetch go list -f "{{if and .GoFiles (eq .Module.Path \"$module\")}}{{.Name}} {{.ImportPath}}{{end}}" "$module/..." >"$tmp/packages"

	if grep -qx "main $module" "$tmp/packages"; then
		rm go.*
		fetch go install "$module@$version"
		"$tmp/bin/${module##*/}" --version | tee "$tmp/out"
		grep -qF "$version" "$tmp/out" || {
			printf '%s --version does not print %s\n' "${module##*/}" "$version" >&2
			exit 1
		}
	else
		grep -Ev '^main |/internal(/|$)|^$' "$tmp/packages" >"$tmp/libraries"
		{
			printf 'package program\n\n'
			sed 's/.* \(.*\)/import _ "\1"/' "$tmp/libraries"
		} >program.go
		fetch go build .
		sed 's/.* /imports /' "$tmp/libraries"
	fi
	cd "$tmp"
	rm -rf program
done

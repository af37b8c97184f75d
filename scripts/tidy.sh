#!/bin/sh
# Tidies the requirements of every module, and writes go.work.sum anew. A bare
# go mod tidy ignores go.work, and so fails in a module that requires a version
# of another one that has not been released yet.
set -eu
cd "$(dirname "$0")/.."

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM

go list -m -f '{{.Path}} {{.Dir}}' >"$tmp/modules"
while read -r path dir; do
	cp "$dir/go.mod" "$tmp/go.mod"
	rm -f "$tmp/go.sum"
	[ ! -f "$dir/go.sum" ] || cp "$dir/go.sum" "$tmp/go.sum"
	while read -r other otherdir; do
		[ "$other" = "$path" ] || go mod edit "-replace=$other=$otherdir" "$tmp/go.mod"
	done <"$tmp/modules"
	(cd "$dir" && GOWORK=off go mod tidy "-modfile=$tmp/go.mod")
	while read -r other otherdir; do
		go mod edit "-dropreplace=$other" "$tmp/go.mod"
	done <"$tmp/modules"
	cp "$tmp/go.mod" "$dir/go.mod"
	[ ! -f "$tmp/go.sum" ] || cp "$tmp/go.sum" "$dir/go.sum"
done <"$tmp/modules"
(cd tools && GOWORK=off go mod tidy)

# A go command adds to go.work.sum what it needs, and removes nothing.
rm -f go.work.sum
scripts/sums.sh
scripts/each.sh go mod download

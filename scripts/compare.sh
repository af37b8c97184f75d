#!/bin/sh
# Compares the API and the benchmarks of this tree with those of the last tag, in
# Markdown. It needs apidiff (golang.org/x/exp) and benchstat (golang.org/x/perf).
#
#	scripts/compare.sh          the last tag of the root module
#	scripts/compare.sh COMMIT   any other commit
set -eu
cd "$(dirname "$0")/.."

base=${1:-$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null || true)}
if [ -z "$base" ]; then
	echo 'No version is tagged yet: there is nothing to compare with.'
	exit
fi
tmp=$(mktemp -d)
trap 'git worktree remove --force "$tmp/old"; rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
git worktree add -q --detach "$tmp/old" "$base"

printf '## API since %s\n\n```\n' "$base"
# In a workspace, the packages of the root module include those of the nested ones.
(cd "$tmp/old" && apidiff -m -w "$tmp/api" github.com/routelimit/limit 2>/dev/null)
apidiff -m "$tmp/api" github.com/routelimit/limit 2>/dev/null | grep -Ev '^- \./(benchmarks|cmd|examples|proof)/' || true

printf '```\n\n## Benchmarks since %s\n\n```\n' "$base"
for round in 1 2 3 4 5 6; do # in turns, since the machine is shared
	for tree in "$tmp/old" .; do
		out=$tmp/new.txt
		[ "$tree" = . ] || out=$tmp/old.txt
		(cd "$tree" && go test -run '^$' -bench . -benchmem -benchtime 0.2s . ./core ./stores/memstore) >>"$out" || true # one that fails is missing in the table
	done
done
benchstat "old=$tmp/old.txt" "new=$tmp/new.txt"
printf '```\n'

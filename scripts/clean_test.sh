#!/bin/sh
# Holds that go commands change no file of a fresh clone.
set -eu
cd "$(dirname "$0")/.."

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
scripts/copy.sh "$tmp"
cd "$tmp"
scripts/sums.sh
changed=$(git status --porcelain)
if [ -n "$changed" ]; then
	git --no-pager diff >&2
	printf 'go commands change these files of a fresh clone, run make tidy:\n%s\n' "$changed" >&2
	exit 1
fi
echo 'go commands leave a fresh clone as it is'

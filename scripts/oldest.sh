#!/bin/sh
# Prints the oldest Go that go.work names, as GOTOOLCHAIN wants it: its last release, since
# the first ones have known defects.
set -eu
cd "$(dirname "$0")/.."

oldest=$(awk '$1 == "go" { print $2 }' go.work)
echo "go${oldest%.*}.${LIMIT_OLDEST_PATCH:-5}"

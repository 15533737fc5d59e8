#!/usr/bin/env bash
# Builds versitygw, an S3-compatible server that tests run, as build/tools/versitygw. It needs Go, and
# two minutes on two cores at most; where there is no Go, it says so, and the tests do without.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

VERSION=v1.8.0
GO_MIN=1.25 # what its go.mod asks for

tool=$FIRN_BUILD/tools/versitygw
export PATH=$PATH:/usr/local/go/bin
has_version() { [ "$(go version -m "$tool" 2>/dev/null | awk '$1 == "mod" {print $3}')" = "$VERSION" ]; }

if ! command -v go >/dev/null; then
  say "versitygw is not built, because Go is missing: tests of object stores skip what needs it"
  exit 0
fi
found=$(go env GOVERSION)
if [ "$(printf '%s\n' "$GO_MIN" "${found#go}" | sort -V | head -n 1)" != "$GO_MIN" ]; then
  say "versitygw is not built, because $found is older than $GO_MIN: tests of object stores skip what needs it"
  exit 0
fi
if ! has_version; then
  say "building versitygw $VERSION"
  quietly "$FIRN_BUILD/log/versitygw.log" env GOBIN="$FIRN_BUILD/tools" GOTOOLCHAIN=local GOFLAGS=-mod=mod \
    go install -ldflags='-s -w' "github.com/versity/versitygw/cmd/versitygw@$VERSION"
fi

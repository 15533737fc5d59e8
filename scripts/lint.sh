#!/usr/bin/env bash
# Formatting and lints of every language: make lint
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$FIRN_ROOT"

scripts/deps.sh lint
scripts/server-source.sh
scripts/venv.sh scripts/requirements-lint.txt
for component in rustfmt clippy; do
  cargo "${component/rustfmt/fmt}" --version >/dev/null 2>&1 ||
    quietly "$FIRN_BUILD/log/rustup.log" rustup component add "$component"
done

say "cargo fmt"
cargo fmt --all --check
say "cargo clippy"
# firn-bench builds rival engines; nothing else depends on it.
exclude=()
[ ! -d crates/firn-bench ] || exclude=(--exclude firn-bench)
cargo clippy --quiet --workspace "${exclude[@]}" --all-targets -- -D warnings
say "clang-format"
clang-format --dry-run -Werror mariadb/*.cc mariadb/*.h
say "ruff"
.venv/bin/ruff check --quiet .
say "shell syntax"
for script in scripts/*.sh .ci/run; do bash -n "$script"; done
echo "ok: lint"

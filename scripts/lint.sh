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

# firn-bench is its own workspace. Clippy skips its rival engines, which take minutes to compile.
bench=(--manifest-path crates/firn-bench/Cargo.toml)
say "cargo fmt"
cargo fmt --all --check
cargo fmt "${bench[@]}" --check
say "cargo clippy"
cargo clippy --quiet --workspace --all-targets -- -D warnings
cargo clippy --quiet "${bench[@]}" --target-dir "$FIRN_TARGET" --all-targets -- -D warnings
say "clang-format"
clang-format --dry-run -Werror mariadb/*.cc mariadb/*.h
say "ruff"
.venv/bin/ruff check --quiet .
say "tree: comments, circles, glossary, decisions"
.venv/bin/python scripts/checks/tree.py
say "shell syntax"
for script in scripts/*.sh .ci/run; do bash -n "$script"; done
echo "ok: lint"

#!/usr/bin/env bash
# Runs the test suites of Django, SQLAlchemy and Alembic, unchanged, on InnoDB and on FIRN, and lists
# each test whose outcome differs; a test that fails on FIRN alone makes the exit status 1.
#
#   scripts/frameworks.sh [--suite=django|sqlalchemy|sqlalchemy-mysql|alembic] [--engine=InnoDB|FIRN] [--all] [--slow=N] [-- tests]
#   scripts/frameworks.sh applications
#
# The second form fetches the packages wordpress and mediawiki, without installing them, and runs
# firn convert on their schemas and on those of tests/sql/applications, there and back.
#
# The sources come from the package index once, into build/frameworks; outcomes and logs go to
# build/frameworks/results.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

here=$FIRN_ROOT/scripts/frameworks
work=$FIRN_BUILD/frameworks

# Their licences stay out of this repository: only the tables' definitions are read, at run time.
applications() {
  local apps=$work/applications package
  local -A files=([wordpress]='wp-admin/includes/schema.php' [mediawiki]='maintenance/tables*.sql')
  for package in wordpress mediawiki; do
    [ -f "$apps/.$package" ] && continue
    say "fetching the package $package"
    mkdir -p "$apps"
    (cd "$apps" && quietly "$FIRN_BUILD/log/$package.log" apt-get -qq download "$package")
    dpkg-deb --fsys-tarfile "$apps/$package"_*.deb |
      tar -C "$apps" -x --wildcards --no-anchored "${files[$package]}"
    rm "$apps/$package"_*.deb
    touch "$apps/.$package"
  done
  scripts/venv.sh tests/requirements.txt
  FIRN_APPLICATIONS=$apps PATH=$FIRN_ROOT/.venv/bin:$PATH exec tests/sql/run test_convert_applications.py "$@"
}

cd "$FIRN_ROOT"
if [ "${1:-}" = applications ]; then
  shift
  applications "$@"
fi
wanted=$(cat "$here"/{requirements,sources}.txt | sha256sum | cut -d' ' -f1)

if [ ! -f "$work/.installed-$wanted" ]; then
  log=$FIRN_BUILD/log
  say "fetching Django, SQLAlchemy and Alembic with their tests"
  rm -rf "$work/src" "$work/sdist"
  mkdir -p "$work/src" "$work/sdist"
  [ -x "$work/venv/bin/pip" ] || quietly "$log/frameworks-venv.log" /usr/bin/python3 -m venv "$work/venv"
  pip=("$work/venv/bin/pip" --disable-pip-version-check --quiet)
  quietly "$log/frameworks-pip.log" "${pip[@]}" install -r "$here/requirements.txt"
  quietly "$log/frameworks-sources.log" "${pip[@]}" download --no-deps \
    --no-binary "$(sed 's/=.*//' "$here/sources.txt" | paste -sd,)" -d "$work/sdist" -r "$here/sources.txt"
  for archive in "$work"/sdist/*.tar.gz; do tar -C "$work/src" -xzf "$archive"; done
  touch "$work/.installed-$wanted"
fi
exec "$work/venv/bin/python" "$here/run.py" "$@"

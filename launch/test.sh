#!/usr/bin/env bash
# Checks style and imports, and runs the tests; arguments go to pytest:
#
#   bash launch/test.sh            all but the slow tests
#   bash launch/test.sh -m slow    the slow ones
#   bash launch/test.sh -n0 --pdb  in one process, for a debugger
#
# All checks run; the script fails if one of them fails.
set -eu
source "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"

make_environment test
! is_dry_run || show cd "$project"
cd "$project"

failed=0
check() {
  if is_dry_run; then
    show "$@"
  else
    "$@" || failed=1
  fi
}

check "$environment/bin/ruff" check
check "$environment/bin/ruff" format --check
check "$environment/bin/lint-imports"
# Test files run in parallel: one per core, at most four. Each process compiles
# for itself.
check "$environment/bin/python" -m pytest \
  --numprocesses=auto --maxprocesses=4 --dist=loadfile "$@"
exit "$failed"

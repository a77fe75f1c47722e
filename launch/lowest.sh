#!/usr/bin/env bash
# Runs the tests with the lowest versions of its direct dependencies that
# setup.cfg allows, in a temporary environment:
#
#   bash launch/lowest.sh              all but the slow tests
#   bash launch/lowest.sh tests/runs   the tests in a folder
#
# Needs the network and uv, since only uv resolves to the lowest versions.
set -eu
# Gives `project`, `fail` and `has_uv`; makes no environment.
source "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"

has_uv || fail "uv is missing; install it, by pip install uv for example."
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT
python=$scratch/bin/python
# The lowest Python, too; uv fetches it if it is not installed.
uv venv --quiet --python 3.11 "$scratch"
uv pip install --quiet --python "$python" --resolution lowest-direct \
  "$project[test]"
# The tests use the sources in this folder, not installed ones.
uv pip uninstall --quiet --python "$python" gtmm_jax
cd "$project"
PYTHONPATH=$project "$python" -m pytest -p no:cacheprovider \
  --numprocesses=auto --maxprocesses=4 --dist=loadfile "$@"

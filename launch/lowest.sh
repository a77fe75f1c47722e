#!/usr/bin/env bash
# Runs the tests with the lowest versions that setup.cfg allows of what the
# project asks for itself, in an environment that is made anew and kept nowhere:
#
#   bash launch/lowest.sh                         all but the slow tests
#   bash launch/lowest.sh tests/runs   these
#
# Needs uv, which alone resolves to the lowest versions, and the network.
set -eu
# For `project`, `fail` and `has_uv`; no environment is made there.
source "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"

has_uv || fail "uv is missing; install it, by pip install uv for example."
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT
python=$scratch/bin/python
# The lowest Python, too, which uv fetches where it is not there.
uv venv --quiet --python 3.11 "$scratch"
uv pip install --quiet --python "$python" --resolution lowest-direct \
  "$project[test]"
# The sources here, not those that were installed.
uv pip uninstall --quiet --python "$python" gtmm_jax
cd "$project"
PYTHONPATH=$project "$python" -m pytest -p no:cacheprovider \
  --numprocesses=auto --maxprocesses=4 --dist=loadfile "$@"

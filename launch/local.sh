#!/usr/bin/env bash
# Runs experiments/run.py on this machine, from any folder, with its flags:
#
#   bash launch/local.sh --task=perfect_recall --model=introspective
#
# The first call makes the environment, with the CUDA build of JAX if there is
# an NVIDIA GPU; later calls start at once. GTMM_DRY_RUN=1 only shows the
# commands.
set -eu
source "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"

make_environment
finish "$environment/bin/python" "$project/experiments/run.py" "$@"

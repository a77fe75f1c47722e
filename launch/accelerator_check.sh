#!/usr/bin/env bash
# Checks the project on a machine with an accelerator, in at most 9 minutes:
#
#   bash launch/accelerator_check.sh FOLDER_OF_IDX OUTPUT_FOLDER
#
# FOLDER_OF_IDX holds the four idx files of MNIST. The script writes
# accelerator.json and figures to OUTPUT_FOLDER: the results of the tests on the
# CPU and, for the introspective model and the VRNN at the paper preset, the
# cost of a training step at 1, 5 and 20 replicas and the results of a short
# run.
#
# The script installs and fetches nothing: `python3`, or $PYTHON, must have jax
# and the other packages already. GTMM_CHECK_TINY=1 tries the script in about
# two minutes on any machine. The script fails if a part of the check failed,
# but not if one was stopped or skipped because time ran out.
set -eu
# Gives `project`, `fail` and `is_python`; makes no environment.
source "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"
SECONDS=0

[ $# = 2 ] || fail "Give two arguments: the folder of MNIST's four idx files, \
and the folder for the results."
[ -d "$1" ] || fail "$1 is not a folder; name the one that holds MNIST's four \
idx files."
[ ! -e "$2" ] || [ -d "$2" ] || fail "$2 is a file; name a folder for the \
results."
python=${PYTHON:-python3}
is_python "$python" || fail "$python is not a Python from 3.11 on; name one in \
PYTHON."
timeout 1 true 2>/dev/null || fail "The command timeout is missing; install \
GNU coreutils."
mkdir -p -- "$2" 2>/dev/null && [ -w "$2" ] || fail "$2 cannot be made or \
written to; name another folder for the results."

digits=$(CDPATH='' cd -- "$1" && pwd -P)
output=$(CDPATH='' cd -- "$2" && pwd -P)
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT
report=$project/launch/accelerator_report.py

export PYTHONPATH=$project${PYTHONPATH:+:$PYTHONPATH}
export PYTHONUNBUFFERED=1 MPLBACKEND=Agg
unset PYTEST_ADDOPTS

# Seconds: of everything, of the tests, of a benchmark, of the steps in one of
# its rows, of the steps in a run.
if [ "${GTMM_CHECK_TINY:-}" = 1 ]; then
  total=240 tests=30 benchmark=60 row=0.5 training=3
  preset=small counts=1,2 episodes=20
  suite=(tests/records/records_test.py tests/model/distributions_test.py)
else
  total=540 tests=130 benchmark=100 row=3 training=100
  preset=paper counts=1,5,20 episodes=500
  suite=(tests)
fi
# Seconds reserved for the last report.
reserve=15

left() {
  echo $((total - reserve - SECONDS))
}

# Runs a part of the check, for SECONDS or until the time of all is over:
#
#   part NAME SECONDS COMMAND...
#
# Its output goes to a log, whose end is shown; its outcome goes to a list.
part() {
  local name=$1 limit=$2 began=$SECONDS status=0 outcome=complete
  shift 2
  [ "$limit" -le "$(left)" ] || limit=$(left)
  if [ "$limit" -lt 5 ]; then
    skip "$name" 'no time was left'
    return
  fi
  printf '\n== %s, at most %s s\n' "$name" "$limit"
  # Interrupts first, so that pytest still prints its summary, and kills 5 s
  # later. The shell's message about the kill goes to the log, too.
  (cd "$project" && timeout -s INT -k 5 "$limit" "$@" || exit $?) \
    >"$scratch/$name.log" 2>&1 </dev/null || status=$?
  case $status in
    0) ;;
    124 | 137) outcome="stopped after $limit s" ;;
    *) outcome="failed with code $status" ;;
  esac
  tail -n 12 "$scratch/$name.log"
  note "$name" $((SECONDS - began)) "$outcome"
}

skip() {
  note "$1" 0 "skipped: $2"
}

# Writes the report after every part, so that a crash loses no finished part.
note() {
  printf '%s\t%s\t%s\n' "$@" >>"$scratch/parts"
  printf '== %s: %s (%s s)\n' "$1" "$3" "$2"
  "$python" "$report" assemble "$scratch" "$output"
}

# Trains one model for as many steps as fit into SECONDS by its benchmark; if
# none fit, tries the next number:
#
#   train MODEL SECONDS...
train() {
  local model=$1 limit plan
  shift
  for limit in "$@"; do
    plan=$("$python" "$report" plan "$scratch/benchmark-$model.json" \
      "$limit" "$training") || plan='skipped: no plan could be made'
    case $plan in skipped:*) continue ;; esac
    # The plan is a list of flags without blanks inside.
    part "run-$model" "$limit" "$python" experiments/run.py $plan \
      --task=perfect_recall --model="$model" --preset=$preset \
      --data=files:"$digits" --workdir="$scratch/run-$model" \
      --evaluation_episodes=$episodes
    return
  done
  skip "run-$model" "${plan#skipped: }"
}

timeout 90 "$python" "$report" describe "$scratch" >"$scratch/platform" ||
  fail "The packages of the project cannot be imported by $python; the last \
line above says why."
if [ "$(cat "$scratch/platform")" = cpu ]; then
  [ "${GTMM_CHECK_TINY:-}" = 1 ] || fail "jax finds no accelerator here; \
GTMM_CHECK_TINY=1 tries the check on a CPU."
fi

part tests "$tests" "$python" -m pytest -v -rfE --tb=short -p no:cacheprovider \
  "${suite[@]}"
if [ "$(cat "$scratch/platform")" != cpu ]; then
  # A run reuses the programs that its benchmark compiled. Not on CPUs, where
  # jax may crash on programs that it reads from the cache.
  export JAX_COMPILATION_CACHE_DIR=$scratch/compiled
fi
for model in introspective vrnn; do
  part "benchmark-$model" "$benchmark" "$python" experiments/benchmark.py \
    --task=perfect_recall --model="$model" --preset=$preset \
    --grow=replicas=$counts --seconds=$row --data=files:"$digits" \
    --json="$scratch/benchmark-$model.json"
done
train introspective $(($(left) / 2)) "$(left)"
train vrnn "$(left)"

"$python" "$report" assemble "$scratch" "$output" --figures
printf '\nAfter %s s:\n' "$SECONDS"
cut -f 1,3 "$scratch/parts"
ls -l -- "$output"
! cut -f 3 "$scratch/parts" | grep -q '^failed'

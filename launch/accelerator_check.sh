#!/usr/bin/env bash
# Checks the project on a machine with an accelerator, in at most 9 minutes:
#
#   bash launch/accelerator_check.sh FOLDER_OF_IDX OUTPUT_FOLDER
#
# FOLDER_OF_IDX holds the four idx files of MNIST. OUTPUT_FOLDER gets the tests
# on the CPU and, for the introspective model and the VRNN at the paper preset,
# what a training step costs at 1, 5 and 20 replicas and what a short run comes
# to: accelerator.json and figures.
#
# Nothing is installed or fetched: `python3`, or $PYTHON, has to have jax and
# the other packages already. GTMM_CHECK_TINY=1 tries the script in some two
# minutes on any machine. The script fails where a part of the check failed, not
# where one was cut short or left out for want of time.
set -eu
# For `project`, `fail` and `is_python`; no environment is made.
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

# Seconds: for all, for the tests, for a benchmark, for the steps of one of its
# rows, for the steps of a run.
if [ "${GTMM_CHECK_TINY:-}" = 1 ]; then
  total=240 tests=30 benchmark=60 row=0.5 training=3
  preset=small counts=1,2 episodes=20
  suite=(tests/records/records_test.py tests/model/distributions_test.py)
else
  total=540 tests=130 benchmark=100 row=3 training=100
  preset=paper counts=1,5,20 episodes=500
  suite=(tests)
fi
# Kept back for the last report.
reserve=15

left() {
  echo $((total - reserve - SECONDS))
}

# Runs a part of the check, at most as many seconds and at most until the end:
#
#   part NAME SECONDS COMMAND...
#
# What it prints goes to a log, whose end is shown, and how it ended to a list.
part() {
  local name=$1 limit=$2 began=$SECONDS status=0 outcome=complete
  shift 2
  [ "$limit" -le "$(left)" ] || limit=$(left)
  if [ "$limit" -lt 5 ]; then
    skip "$name" 'no time was left'
    return
  fi
  printf '\n== %s, at most %s s\n' "$name" "$limit"
  # An interrupt, so that pytest still sums up; death where that does not help.
  # The shell's own word of that death goes to the log, too.
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

# The report is written after every part: what is known is kept, whatever comes.
note() {
  printf '%s\t%s\t%s\n' "$@" >>"$scratch/parts"
  printf '== %s: %s (%s s)\n' "$1" "$3" "$2"
  "$python" "$report" assemble "$scratch" "$output"
}

# Trains one model for what, by its benchmark, fits into so many seconds; where
# nothing does, into the next number:
#
#   train MODEL SECONDS...
train() {
  local model=$1 limit plan
  shift
  for limit in "$@"; do
    plan=$("$python" "$report" plan "$scratch/benchmark-$model.json" \
      "$limit" "$training") || plan='skipped: no plan could be made'
    case $plan in skipped:*) continue ;; esac
    # The plan is flags, none with a blank inside.
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
  # A run then finds compiled what its benchmark has compiled. Not on CPUs: jax
  # may crash there on what it reads.
  export JAX_COMPILATION_CACHE_DIR=$scratch/compiled
fi
for model in introspective vrnn; do
  part "benchmark-$model" "$benchmark" "$python" experiments/benchmark.py \
    --task=perfect_recall --model="$model" --preset=$preset \
    --replicas=$counts --seconds=$row --data=files:"$digits" \
    --json="$scratch/benchmark-$model.json"
done
train introspective $(($(left) / 2)) "$(left)"
train vrnn "$(left)"

"$python" "$report" assemble "$scratch" "$output" --figures
printf '\nAfter %s s:\n' "$SECONDS"
cut -f 1,3 "$scratch/parts"
ls -l -- "$output"
! cut -f 3 "$scratch/parts" | grep -q '^failed'

# Makes the project's environment, `.venv` in its root; sourced by the launch
# scripts, never run. Written for bash 3.2 on, which is what macOS has.
#
# GTMM_DRY_RUN=1 shows the commands, one a line, and runs none of them.

project=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
environment=$project/.venv
# One line for each set of extras that was installed to the end.
stamp=$environment/installed
# Holds the process that installs, until it is done; an installation that was
# cut short leaves it. It lies outside the environment, which may be cleared.
unfinished=$project/.venv-unfinished

fail() {
  printf '%s\n' "$1" >&2
  exit 1
}

is_dry_run() {
  [ "${GTMM_DRY_RUN:-}" = 1 ]
}

show() {
  local line
  line=$(printf '%q ' "$@")
  printf '%s\n' "${line% }"
}

# Runs a command, or shows it. What an installer prints goes to standard error:
# standard output belongs to the program that is started in the end.
run() {
  if is_dry_run; then
    show "$@"
  else
    "$@" >&2 || fail "The environment is not complete, since this failed: \
$(show "$@")"
  fi
}

# Ends the script with a command in its place, so that signals reach it.
finish() {
  if is_dry_run; then
    show "$@"
    exit 0
  fi
  exec "$@"
}

# Whether a command is a Python that will do. It is run to find out: a name on
# the PATH may belong to a version manager with no such version active.
is_python() {
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
    >/dev/null 2>&1 </dev/null
}

# Sets `python` to a Python that can make an environment.
find_python() {
  local candidate without_venv=
  for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
    is_python "$candidate" || continue
    # uv makes environments by itself. `venv` can be imported on Debian where
    # the package that makes it work is absent; `ensurepip` can not.
    if has_uv || "$candidate" -c 'import ensurepip, venv' >/dev/null 2>&1; then
      # A bare name would be a request to uv, which may then take another.
      python=$(command -v "$candidate")
      return
    fi
    without_venv=$candidate
  done
  if [ -n "$without_venv" ]; then
    fail "$without_venv cannot make an environment (no ensurepip): install \
python3-venv (Debian, Ubuntu) or uv, then run this again."
  fi
  fail "No Python from 3.11 on was found on the PATH: install Python 3.11 or \
newer, for example 3.13, then run this again."
}

has_uv() {
  uv --version >/dev/null 2>&1 </dev/null
}

has_nvidia_gpu() {
  nvidia-smi >/dev/null 2>&1 </dev/null
}

# Prints what an installation depends on, as a hash: what is declared, the
# Python, and where the project lies, which an environment remembers.
fingerprint() {
  "$environment/bin/python" - "$project" <<'PYTHON'
import hashlib
import pathlib
import sys

project = pathlib.Path(sys.argv[1])
digest = hashlib.sha256(f'{project}\n{sys.version}\n'.encode())
for name in ('setup.cfg', 'pyproject.toml'):
  digest.update((project / name).read_bytes())
print(digest.hexdigest())
PYTHON
}

# Whether the project was installed here with these extras, to the end.
is_installed() {
  local key
  [ ! -e "$unfinished" ] && [ -e "$stamp" ] || return 1
  key=$(fingerprint 2>/dev/null) || return 1
  grep -qxF -- "$key $1" "$stamp"
}

# Whether .venv can be installed into as it is.
is_usable() {
  [ ! -e "$unfinished" ] && is_python "$environment/bin/python" || return 1
  has_uv || "$environment/bin/python" -c 'import pip' >/dev/null 2>&1
}

# Waits for another process that installs here now.
wait_for_installer() {
  local installer told=
  while installer=$(cat "$unfinished" 2>/dev/null) &&
    [ -n "$installer" ] && kill -0 "$installer" 2>/dev/null; do
    [ -n "$told" ] || printf '%s\n' "Waiting for process $installer, which \
installs in .venv; if it does not, remove $unfinished." >&2
    told=yes
    sleep 1
  done
}

# Makes .venv and installs the project there, editable, with the extras given
# ('test', say; none without an argument), and with 'cuda' where an NVIDIA GPU
# answers. Returns at once where that has been done before.
make_environment() {
  local extras=${1:-}
  if has_nvidia_gpu; then
    extras=${extras:+$extras,}cuda
  fi
  is_installed "$extras" && return
  is_dry_run && install_project "$extras" && return

  # One at a time; where there is no flock, by looking before starting.
  if command -v flock >/dev/null 2>&1; then
    exec 9>"$project/.venv-lock"
    flock 9
  fi
  wait_for_installer
  if ! is_installed "$extras"; then
    printf '%s\n' "Installing gtmm_jax${extras:+[$extras]} in .venv, once." >&2
    install_project "$extras"
    record_installation "$extras"
  fi
  # What is started next must not hold the lock.
  exec 9>&-
}

# Makes .venv where it can't be used as it is, and installs the project there.
install_project() {
  local target=$project${1:+[$1]} clear= python
  if ! is_usable; then
    find_python
    [ ! -e "$environment" ] || clear=--clear
    is_dry_run || echo $$ >"$unfinished"
    if has_uv; then
      run uv venv --quiet $clear --python "$python" "$environment"
    else
      run "$python" -m venv $clear "$environment"
    fi
  fi
  is_dry_run || echo $$ >"$unfinished"
  if has_uv; then
    run uv pip install --python "$environment/bin/python" --editable "$target"
  else
    run "$environment/bin/python" -m pip install --editable "$target"
  fi
}

# What was installed before for the same declarations stays on record.
record_installation() {
  local key known=
  key=$(fingerprint)
  if [ -e "$stamp" ]; then
    known=$(grep -- "^$key " "$stamp" || true)
  fi
  printf '%s\n' ${known:+"$known"} "$key $1" >"$stamp.new"
  mv "$stamp.new" "$stamp"
  rm "$unfinished"
}

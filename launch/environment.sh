# Makes the project's environment, `.venv` in its root; sourced by the launch
# scripts, never run. Written for bash 3.2 on, which is what macOS has.
#
# GTMM_DRY_RUN=1 shows the commands, one per line, and runs none of them.

project=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
environment=$project/.venv
# One line for each set of extras whose installation was completed.
stamp=$environment/installed
# Holds the id of the installing process until it is done; an interrupted
# installation leaves it. It is outside the environment, which may be cleared.
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

# Runs a command, or shows it. An installer's output goes to standard error:
# standard output belongs to the program that is started afterwards.
run() {
  if is_dry_run; then
    show "$@"
  else
    "$@" >&2 || fail "The environment is not complete, since this failed: \
$(show "$@")"
  fi
}

# Replaces the script by a command, so that signals reach the command.
finish() {
  if is_dry_run; then
    show "$@"
    exit 0
  fi
  exec "$@"
}

# Tells whether a command is a Python from 3.11 on. It must be run to find out:
# a name on the PATH may belong to a version manager without such a version.
is_python() {
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
    >/dev/null 2>&1 </dev/null
}

# Sets `python` to a Python that can make an environment.
find_python() {
  local candidate without_venv=
  for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
    is_python "$candidate" || continue
    # uv makes environments itself. On Debian `venv` can be imported without the
    # package python3-venv, which it needs to work; `ensurepip` cannot.
    if has_uv || "$candidate" -c 'import ensurepip, venv' >/dev/null 2>&1; then
      # uv treats a bare name as a request and may choose another Python.
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

# Prints a hash of what an installation depends on: the declared requirements,
# the Python, and the project's folder, whose path an environment contains.
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

# Tells whether an installation with these extras was completed.
is_installed() {
  local key
  [ ! -e "$unfinished" ] && [ -e "$stamp" ] || return 1
  key=$(fingerprint 2>/dev/null) || return 1
  grep -qxF -- "$key $1" "$stamp"
}

# Tells whether packages can be installed in .venv as it is.
is_usable() {
  [ ! -e "$unfinished" ] && is_python "$environment/bin/python" || return 1
  has_uv || "$environment/bin/python" -c 'import pip' >/dev/null 2>&1
}

# Waits while another process installs in .venv.
wait_for_installer() {
  local installer is_announced=
  while installer=$(cat "$unfinished" 2>/dev/null) &&
    [ -n "$installer" ] && kill -0 "$installer" 2>/dev/null; do
    [ -n "$is_announced" ] || printf '%s\n' "Waiting for process $installer, \
which installs in .venv; if it does not, remove $unfinished." >&2
    is_announced=yes
    sleep 1
  done
}

# Makes .venv and installs the project there, editable, with the extras in the
# argument (for example 'test') and with 'cuda' if there is an NVIDIA GPU.
# Returns at once if that has been done before.
make_environment() {
  local extras=${1:-}
  if has_nvidia_gpu; then
    extras=${extras:+$extras,}cuda
  fi
  is_installed "$extras" && return
  is_dry_run && install_project "$extras" && return

  # One process installs at a time; without flock, `unfinished` alone tells.
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
  # The program that is started next must not hold the lock.
  exec 9>&-
}

# Makes .venv anew if it cannot be used, and installs the project there.
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

# Records the extras, beside those installed before from the same declarations.
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

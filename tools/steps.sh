# Shared by ./quickstart and ./check: packages, steps with their seconds, builds with the time left.
# Sourced by bash from the root of the source tree.

log_folder=build/logs
# Goes before commands that take long: `timeout` and its limit, where there is one.
limit=()
mkdir -p "$log_folder"

say() { printf '%s\n' "$*"; }
die() { printf '%s\n' "$*" >&2; exit 1; }

# Packages that the program needs to be built and run. pip only fetches models; it installs nothing.
build_packages=(g++ cmake ninja-build pkg-config ca-certificates libfmt-dev libcli11-dev
  nlohmann-json3-dev libcurl4-openssl-dev libpcre2-dev libutf8proc-dev libedit-dev libeigen3-dev
  libboost1.81-dev libssl-dev python3 python3-pip)

# Packages that only the tests and checks need.
test_packages=(libgtest-dev googletest ccache clang-19 libclang-rt-19-dev clang-tidy-19
  clang-format-19 llvm-19 g++-aarch64-linux-gnu qemu-user python3-venv file dpkg-dev git
  nginx openssl)

# The page's bundler and browser. Node that is not Debian's brings its own npm, and theirs would not
# go beside it.
command -v npm >/dev/null || test_packages+=(nodejs npm)
command -v chromium >/dev/null || test_packages+=(chromium fonts-liberation)

# install_packages NAME...: installs those that are missing with apt, through sudo unless root.
install_packages() {
  if ! command -v dpkg-query >/dev/null; then
    say "    this is no Debian system: please have these installed: $*"
    return 0
  fi
  local missing=() name
  for name in "$@"; do
    dpkg-query -W -f '${db:Status-Status}\n' "$name" 2>/dev/null | grep -qx installed ||
      missing+=("$name")
  done
  if [ ${#missing[@]} -eq 0 ]; then
    say "    all ${#} packages are there"
    return 0
  fi
  local as_root=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null ||
      die "    missing: ${missing[*]}
    This is neither root nor is there sudo: please have them installed, then run this again."
    as_root=(sudo)
    say "    sudo may ask for your password"
  fi
  say "    apt-get install ${missing[*]}"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y
    -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300)
  "${apt[@]}" install --no-install-recommends "${missing[@]}" </dev/null \
    >"$log_folder/apt.log" 2>&1 && return 0
  # A fresh machine has no package lists yet, an old one has stale ones.
  "${apt[@]}" update </dev/null >"$log_folder/apt.log" 2>&1 &&
    "${apt[@]}" install --no-install-recommends "${missing[@]}" </dev/null \
      >>"$log_folder/apt.log" 2>&1 && return 0
  tail -n 20 "$log_folder/apt.log" >&2
  return 1
}

# build_targets FOLDER TARGET...: ninja with the share done and the time left, on one line of a
# terminal and else every ten seconds.
build_targets() {
  local folder=$1 log="$log_folder/build-$(basename "$1").log" status
  shift
  NINJA_STATUS='@%f %t %e ' "${limit[@]}" ninja -C "$folder" "$@" 2>&1 | tee "$log" | show_progress
  status=${PIPESTATUS[0]}
  if [ "$status" != 0 ]; then
    grep -vE '^@[0-9]|^ninja: (Entering|no work)' "$log" | tail -n 40 >&2
  fi
  return "$status"
}

show_progress() {
  local line finished total elapsed rest left shown=-10 now end='\n'
  [ -t 1 ] && end='\033[K\r'
  while IFS= read -r line; do
    case $line in @[0-9]*) ;; *) continue ;; esac
    read -r finished total elapsed rest <<<"${line#@}"
    now=${elapsed%.*}
    if [ "$finished" -lt 3 ] || { [ ! -t 1 ] && [ $((now - shown)) -lt 10 ]; }; then continue; fi
    shown=$now
    left=$((now * (total - finished) / finished))
    # shellcheck disable=SC2059
    printf "    compiled %d of %d, %d s so far, about %d s left$end" \
      "$finished" "$total" "$now" "$left"
  done
  [ -t 1 ] && printf '\033[K'
  return 0
}

# configure PRESET [OPTION...]: cmake, quiet unless it fails.
configure() {
  local log="$log_folder/configure-$1.log"
  cmake --preset "$@" >"$log" 2>&1 || { tail -n 30 "$log" >&2; return 1; }
}

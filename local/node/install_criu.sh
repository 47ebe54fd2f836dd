#!/bin/bash
# CRIU 4 in a folder of its own, from Debian's packages, without touching the system:
#   install_criu.sh FOLDER      then FOLDER/criu check
# The machine's own CRIU is used where it is new enough. 25 packages, 7 MB, 5 to 12 s.
set -euo pipefail
folder=$(mkdir -p "$1" && cd "$1" && pwd)
suite=forky
if [ -x "$folder/criu" ]; then exit; fi

if version=$(criu --version 2>/dev/null | grep -oE '[0-9]+' | head -1) && [ "$version" -ge 4 ]; then
    ln -sf "$(command -v criu)" "$folder/criu"
    exit
fi
if ! command -v apt-get > /dev/null || [ "$(uname -m)" != x86_64 ]; then
    echo "no CRIU 4 or newer here; install one (package criu) to save and restore processes" >&2
    exit 1
fi

# The mirror that this machine is set up with, with the newer suite; its signature is checked.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -E '/debian/?$' | head -1)
if [ -z "$mirror" ]; then
    echo "no Debian mirror is set up here; install CRIU 4 or newer (package criu)" >&2
    exit 1
fi
key=/usr/share/keyrings/debian-archive-keyring.gpg
mkdir -p "$folder"/apt/{lists,cache}/partial "$folder"/apt/cache/archives/partial "$folder/debs"
echo "deb [signed-by=$key] $mirror $suite main" > "$folder/apt/sources.list"
options=(
    -o Dir::Etc::sourcelist="$folder/apt/sources.list" -o Dir::Etc::sourceparts=-
    -o Dir::State::lists="$folder/apt/lists" -o Dir::Cache="$folder/apt/cache"
    -o Acquire::Check-Valid-Until=false -o Acquire::http::Timeout=15 -o Acquire::Retries=1 -o APT::Sandbox::User=root
)
apt-get -qq "${options[@]}" update
mapfile -t packages < <(
    apt-cache "${options[@]}" depends --recurse --no-recommends --no-suggests --no-conflicts \
        --no-breaks --no-replaces --no-enhances criu | grep -E '^[a-z]' | sort -u | grep -v gconv
)
(cd "$folder/debs" && apt-get -qq "${options[@]}" download "${packages[@]}")
for package in "$folder"/debs/*.deb; do dpkg -x "$package" "$folder/root"; done
rm -r "$folder/apt" "$folder/debs"

# Its own loader and libraries: the machine's C library may be older.
cat > "$folder/criu.new" <<EOF
#!/bin/sh
exec $folder/root/usr/lib64/ld-linux-x86-64.so.2 \\
    --library-path $folder/root/usr/lib/x86_64-linux-gnu $folder/root/usr/sbin/criu "\$@"
EOF
chmod +x "$folder/criu.new"
"$folder/criu.new" --version
"$folder/criu.new" check
mv "$folder/criu.new" "$folder/criu"

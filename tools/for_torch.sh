#!/usr/bin/env bash
# tools/for_torch.sh TORCH FOLDER: the working tree as the release for another torch (2.11.0, say).
# The source is the same; the versions of the package, and of the torch that it asks for, follow.
set -euo pipefail
cd "$(dirname "$0")/.."
torch=$1 folder=$2
minor=${torch%.*}
mkdir -p "$folder"
# Files keep their times, and the edited ones are newer, so that a second build is incremental.
tar -c --exclude=./.git --exclude='./.venv*' --exclude=./build --exclude=./dist --exclude=./.gpu \
  --exclude='*.so' --exclude=__pycache__ . | tar -x --keep-newer-files -C "$folder" 2>/dev/null
sed -i -E "s/^(version = \")[0-9.]+/\1$torch/; s/torch==[0-9]+\.[0-9]+\.\*/torch==$minor.*/g" "$folder/pyproject.toml"
sed -i -E "s/^(__version__ = \")[0-9.]+/\1$torch/" "$folder/torch_xla/_src/version.py"
sed -i -E "s/^torch==.*/torch==$torch/" "$folder/requirements/build.txt"

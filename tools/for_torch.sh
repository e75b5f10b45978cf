#!/usr/bin/env bash
# tools/for_torch.sh TORCH FOLDER: the working tree as the release for another torch (2.11.0, say).
# The source is the same; the versions of the package, and of the torch that it asks for, follow.
set -euo pipefail
cd "$(dirname "$0")/.."
torch=$1 folder=$2
minor=${torch%.*}
stage=$folder.stage
rm -rf "$stage"
mkdir -p "$stage" "$folder"
tar -c --exclude=./.git --exclude='./.venv*' --exclude=./build --exclude=./dist --exclude=./.gpu \
  --exclude='*.so' --exclude=__pycache__ . | tar -x -C "$stage"
sed -i -E "s/^(version = \")[0-9.]+/\1$torch/; s/torch==[0-9]+\.[0-9]+\.\*/torch==$minor.*/g" "$stage/pyproject.toml"
sed -i -E "s/^(__version__ = \")[0-9.]+/\1$torch/" "$stage/torch_xla/_src/version.py"
sed -i -E "s/^torch==.*/torch==$torch/" "$stage/requirements/build.txt"
# What differs gets the time of now, so that a second build is incremental, and complete.
(cd "$stage" && find . -type f -print0) | while IFS= read -r -d '' file; do
  cmp -s "$stage/$file" "$folder/$file" && continue
  mkdir -p "$(dirname "$folder/$file")"
  cp "$stage/$file" "$folder/$file"
done
rm -rf "$stage"

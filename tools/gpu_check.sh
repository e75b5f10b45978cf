#!/usr/bin/env bash
# tools/gpu_check.sh prepare   here, with a network: fills .gpu/ with what the GPU machine lacks
# tools/gpu_check.sh           there, in a copy of the tree with .gpu/: builds for the torch that
#                              $PYTHON has, then runs acceptance checks and operator tests
#                              with PJRT_DEVICE=${PJRT_DEVICE:-CUDA}
# No network is used there. It must have torch, numpy, CMake, ninja, pytest, pytest-xdist, hypothesis
# and a PJRT plugin for the device (jax-cuda13-pjrt).
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1:-}" = prepare ]; then
  rm -rf .gpu && mkdir -p .gpu/include
  plugin=$(.venv/bin/python -c "
import importlib.util
print(importlib.util.find_spec('xla_plugins.xla_cpu_pjrt').submodule_search_locations[0])")
  cp "$plugin/include/pjrt_c_api.h" .gpu/include/
  acceptance=${ACCEPTANCE:-../shared/acceptance}
  [ ! -d "$acceptance" ] || cp -r "$acceptance" .gpu/acceptance
  # The machine may lack it; it is small and pure Python.
  .venv/bin/python -m pip download -q --no-deps -d .gpu/wheels "$(grep ^expecttest requirements/test.txt)"
  du -sh .gpu
  exit
fi

python=${PYTHON:-python3}
export PJRT_DEVICE=${PJRT_DEVICE:-CUDA} PJRT_ALLOCATOR_PREALLOCATE=0  # several processes share it
torch=$($python -c "import torch; print(torch.__version__.split('+')[0])")
work=${WORK:-build/gpu}
tree=$work/tree
tools/for_torch.sh "$torch" "$tree"
include=$PWD/.gpu/include
mkdir -p "$work/site"
for wheel in .gpu/wheels/*.whl; do $python -m zipfile -e "$wheel" "$work/site"; done
export PYTHONPATH=$PWD/$tree:$PWD/$work/site${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
acceptance=$PWD/.gpu/acceptance
cd "$tree"

echo "=== build for torch $torch"
cmake -G Ninja -S . -B ../build -DPython_EXECUTABLE="$(command -v "$python")" -DXLA_TESTS=OFF \
  -DXLA_INPLACE=ON -DPJRT_INCLUDE_DIR="$include"
cmake --build ../build -j "$(nproc)"

status=0
echo "=== environment"
timeout 60 "$python" -m torch_xla.debug.env || status=1
echo "=== acceptance"
if [ -d "$acceptance" ]; then
  one_device="a01 a02 a03 a04 a07 a08 a09a a09b a10 a11 a12 b01 b05 b06 b08"
  ACCEPTANCE=$acceptance timeout 240 "$python" tools/acceptance.py ${NAMES:-$one_device} || status=1
fi
echo "=== operators"
# Compiling for a GPU takes longer than for a CPU: many processes (pytest-xdist).
timeout "${OPS_LIMIT_S:-240}" "$python" -m pytest -q -n "${JOBS:-8}" -p no:cacheprovider tests/ops || status=1
exit $status

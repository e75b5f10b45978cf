#!/usr/bin/env bash
# House rules that no other tool knows; prints each breach as file:line.
set -uo pipefail
cd "$(dirname "$0")/.."
bad=0

breach() {  # text, then the arguments of git grep
  local found
  found=$(git grep --untracked -nIE "${@:2}") || return 0
  printf '%s:\n%s\n' "$1" "$found"
  bad=1
}

# The brackets keep the patterns from finding themselves.
breach "a path of one machine" '/[w]ork/|/[h]ome/[a-z]|/[r]oot/'
breach "a package registry's address" '[p]ypi\.org|[p]ythonhosted|[d]ownload\.pytorch|[i]ndex-url|[d]eb\.debian'
breach "an include that leaves its layer's root" '#include "\.\./' -- csrc tests
breach "torch below the layer aten" '#include <(torch|ATen|c10|Python\.h|pybind11)' -- \
  csrc/base csrc/pjrt csrc/hlo csrc/ir csrc/lazy
breach "a header that takes half a minute" '#include <(torch/extension|torch/torch|torch/all|ATen/ATen|ATen/Functions)\.h>' -- csrc

exit $bad

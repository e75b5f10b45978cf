// Precompiled for the bindings: pybind11 as torch brings it, with the caster of at::Tensor.
#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

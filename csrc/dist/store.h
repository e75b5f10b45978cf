// c10d's store as the one through which a plugin's clients find each other.
#pragma once

#include <memory>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "pjrt/key_value.h"

namespace torch_xla::dist {

std::shared_ptr<pjrt::KeyValueStore> MakeKeyValueStore(c10::intrusive_ptr<c10d::Store> store);

}  // namespace torch_xla::dist

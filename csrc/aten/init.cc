#include "aten/init.h"

#include <mutex>

#include "aten/fallback.h"
#include "aten/mutation_adapter.h"

namespace torch_xla {

void Initialize() {
  static std::once_flag once;
  std::call_once(once, [] {
    InstallMutationAdapter();
    InstallFallback();
  });
}

}  // namespace torch_xla

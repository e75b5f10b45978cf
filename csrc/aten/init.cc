#include "aten/init.h"

#include <mutex>

#include "aten/fallback.h"
#include "aten/mutation_adapter.h"
#include "aten/precision.h"
#include "aten/sparse.h"
#include "aten/view_copies.h"

namespace torch_xla {

void Initialize() {
  static std::once_flag once;
  std::call_once(once, [] {
    InstallViewCopies();
    InstallMutationAdapter();
    InstallFallback();
    InstallSparse();
    InstallMatMulPrecision();
  });
}

}  // namespace torch_xla

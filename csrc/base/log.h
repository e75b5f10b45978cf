// Messages for the user. The bindings send them to Python's logger `torch_xla`.
#pragma once

#include <functional>
#include <string>

namespace torch_xla {

enum class Severity { kInfo, kWarning, kError };

// Default: standard error, from kWarning on. The sink must be thread-safe.
void SetLogSink(std::function<void(Severity, const std::string&)> sink);
void Log(Severity severity, const std::string& message);

}  // namespace torch_xla

#include "base/log.h"

#include <cstdio>
#include <utility>

namespace torch_xla {
namespace {

std::function<void(Severity, const std::string&)>& Sink() {
  static auto* sink = new std::function<void(Severity, const std::string&)>(
      [](Severity severity, const std::string& message) {
        if (severity != Severity::kInfo) std::fprintf(stderr, "torch_xla: %s\n", message.c_str());
      });
  return *sink;
}

}  // namespace

void SetLogSink(std::function<void(Severity, const std::string&)> sink) {
  Sink() = std::move(sink);
}

void Log(Severity severity, const std::string& message) { Sink()(severity, message); }

}  // namespace torch_xla

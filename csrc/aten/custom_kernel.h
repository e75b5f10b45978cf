// Operators that users write: in StableHLO, or as FFI handlers of XLA out of a library of theirs.
//
//   auto& kernel = CustomKernel::StableHlo("my::gelu", text, {shape});  // remembered for ever
//   std::vector<at::Tensor> results = kernel.Record({x});
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "base/hash.h"
#include "hlo/control.h"
#include "ir/node.h"

namespace torch_xla {

// What an operator is for arguments of certain shapes. Programs with two of different content are
// different programs.
class CustomKernel {
 public:
  // `module`: StableHLO text whose @main takes the tensors and gives `results`. Throws
  // kInvalidArgument, naming the operator, when it does not, or when the plugin refuses it.
  static const CustomKernel& StableHlo(const std::string& op, const std::string& module,
                                       std::vector<Shape> results);
  // `handler`: one that RegisterFfiHandler has taken. It gets the tensors, then the
  // results, all dense and row-major, and the attributes.
  static const CustomKernel& Ffi(const std::string& op, const std::string& handler,
                                 hlo::Attrs attributes, std::vector<Shape> results);

  std::vector<at::Tensor> Record(at::TensorList tensors) const;

 private:
  CustomKernel() = default;
  static const CustomKernel& Find(CustomKernel made);
  static void Lower(const ir::Node& node, hlo::Builder& b, std::span<const hlo::Value> operands,
                    std::vector<hlo::Value>& outputs);
  void CheckSignature();

  const ir::OpDef* op_ = nullptr;
  std::string text_;  // the module, or the handler's name
  bool ffi_ = false;
  hlo::Attrs attributes_;
  std::vector<Shape> parameters_;  // of a module's @main
  std::vector<Shape> results_;
  Hash hash_;
};

// A handler (XLA_FFI_Handler*) under a name of ours, which is part of programs: equal in every
// process that runs them. Throws kUnimplemented where the plugin takes none, kAlreadyExists when
// another one has the name, and kFailedPrecondition when it speaks a version of the interface that
// we do not. The plugin itself takes handlers of its own version alone: it sees one of ours, which
// calls the user's.
void RegisterFfiHandler(const std::string& name, void* handler);

}  // namespace torch_xla

// The definition as an engine: every node by its kernel's reference, one image a task.
#pragma once

#include "src/engine/engine.h"

namespace octet {

class ReferenceEngine final : public Engine {
 public:
  std::string_view name() const override { return "reference"; }
  Support available() const override { return {true, ""}; }
  Support supports(const Int8Graph& graph, int node) const override;
  std::unique_ptr<Program> compile(const Int8Graph& graph, const CompileOptions& options) const override;
};

}  // namespace octet

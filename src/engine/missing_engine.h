// An engine that this build was made without, so that its name is known and the cure can be told.
#pragma once

#include <string>

#include "src/common/error.h"
#include "src/engine/engine.h"

namespace octet {

class MissingEngine final : public Engine {
 public:
  explicit MissingEngine(std::string name) : name_(std::move(name)) {}
  std::string_view name() const override { return name_; }
  Support available() const override {
    return {false, "built without CUDA: install nvcc and run tools/setup.sh again"};
  }
  bool on_gpu() const override { return true; }
  Support supports(const Int8Graph&, int) const override { return available(); }
  std::unique_ptr<Program> compile(const Int8Graph&, const CompileOptions&) const override {
    throw usage_error("engine " + name_ + ": " + available().reason);
  }

 private:
  std::string name_;
};

}  // namespace octet

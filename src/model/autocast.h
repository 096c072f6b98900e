// Mixed precision: autocast as a guard. LibTorch has the building blocks in C++, not the
// class (pytorch#44710).
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include "src/common/precision.h"

namespace octet {

/// While it lives, convolutions and linears of this thread run in the low precision (nothing for fp32). Restores what
/// was set before, also when an exception passes, and drops the cache of cast weights.
class Autocast {
 public:
  Autocast(at::DeviceType device, Precision precision);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  at::DeviceType device_;
  bool active_, was_enabled_ = false;
  at::ScalarType old_dtype_ = at::kFloat;
};

}  // namespace octet

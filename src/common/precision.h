// The types that convolutions and linears are trained in, as recipes and command lines name them.
#pragma once

#include <array>

#include "src/common/named.h"

namespace octet {

enum class Precision { fp32, bf16, fp16 };
inline constexpr std::array<Named<Precision>, 3> kPrecisions = {
    {{Precision::fp32, "fp32"}, {Precision::bf16, "bf16"}, {Precision::fp16, "fp16"}}};

}  // namespace octet

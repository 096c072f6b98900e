// bfloat16 values, the upper 16 bits of a float in a uint16_t, beside floats in one template. Host.
#pragma once

#include <bit>
#include <cstdint>

namespace octet::kernels {

inline float widen(float x) { return x; }
inline float widen(uint16_t x) { return std::bit_cast<float>(static_cast<uint32_t>(x) << 16); }

}  // namespace octet::kernels

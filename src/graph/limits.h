// Bounds on networks read from files or recipes, so that no product of sizes overflows and no hostile file asks for
// absurd memory. Far above any network octet is meant for.
#pragma once

#include <cstdint>

namespace octet {

inline constexpr int kMaxDimension = 1 << 16;                  ///< channels, height, width, kernel, stride, ...
inline constexpr int64_t kMaxElements = int64_t{1} << 26;      ///< of one image's activation
inline constexpr int64_t kMaxActivations = int64_t{1} << 31;   ///< of one image, all nodes together
inline constexpr int64_t kMaxMultiplyAdds = int64_t{1} << 41;  ///< of one image
inline constexpr int kMaxNodes = 1 << 14;

}  // namespace octet

// Products of sizes that a file gives.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>

namespace octet {

/// Product of numbers >= 0; INT64_MAX when it does not fit.
template <class Factors = std::initializer_list<int64_t>>
int64_t saturating_product(const Factors& factors) {
  int64_t product = 1;
  for (const int64_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product)) return std::numeric_limits<int64_t>::max();
  }
  return product;
}

}  // namespace octet

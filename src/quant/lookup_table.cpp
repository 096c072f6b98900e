#include "src/quant/lookup_table.h"

#include <algorithm>

namespace octet {

std::vector<uint8_t> lookup_table(const Curve& curve, const QParams& x, const QParams& y, const CodeBounds& bounds) {
  std::vector<uint8_t> table(256);
  for (int byte = 0; byte < 256; ++byte) {
    const int32_t code = x.is_signed() ? static_cast<int8_t>(byte) : byte;
    const double real = evaluate(curve, static_cast<double>(dequantize(code, x)));
    table[byte] = static_cast<uint8_t>(std::clamp(quantize(static_cast<float>(real), y), bounds.lo, bounds.hi));
  }
  return table;
}

}  // namespace octet

// The types of real values that device code reads and writes.
#pragma once

namespace octet::kernels {

enum class ValueType { float32, float16, bfloat16 };

}  // namespace octet::kernels

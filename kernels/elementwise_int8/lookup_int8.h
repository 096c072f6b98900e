// A function of one value as a table: y = table[x]. Bytes become bytes, so one definition serves int8 and uint8.
#pragma once

#include <cstdint>

#include "kernels/conv2d_int8/cpu_conv2d.h"

namespace octet::kernels {

/// By the stored byte of the input's code the stored byte of the output's.
struct LookupTable {
  uint8_t byte[256];
};

/// `count` bytes. x and y may be the same. The definition.
void lookup_int8_reference(const LookupTable& table, const uint8_t* x, long count, uint8_t* y);

/// The same on a path of the cpu engine; avx512_vnni keeps the table in registers where the processor has VBMI.
void cpu_lookup_u8(CpuIsa isa, const LookupTable& table, const uint8_t* x, long count, uint8_t* y);

}  // namespace octet::kernels

// One plain loop, compiled once for each instruction set: the loop is an always_inline function that the compiler
// vectorises inside a caller with a target attribute. Every path runs the same source, so all give the same bytes.
#pragma once

#define OCTET_TARGET_AVX2 [[gnu::target("avx2,fma")]]
#define OCTET_TARGET_AVX512 [[gnu::target("avx512f,avx512bw,avx512vl,avx512dq,fma,prefer-vector-width=512")]]

// Defines NAME(isa, arguments...), which calls LOOP(arguments...) compiled for `isa`. PARAMETERS and ARGUMENTS are
// parenthesised lists without the isa.
#define OCTET_FOR_EACH_ISA(NAME, LOOP, PARAMETERS, ARGUMENTS)           \
  namespace {                                                           \
  OCTET_TARGET_AVX512 void NAME##_avx512 PARAMETERS { LOOP ARGUMENTS; } \
  OCTET_TARGET_AVX2 void NAME##_avx2 PARAMETERS { LOOP ARGUMENTS; }     \
  void NAME##_portable PARAMETERS { LOOP ARGUMENTS; }                   \
  auto* NAME##_for(CpuIsa isa) {                                        \
    switch (isa) {                                                      \
      case CpuIsa::avx512_vnni:                                         \
        return &NAME##_avx512;                                          \
      case CpuIsa::avx2:                                                \
        return &NAME##_avx2;                                            \
      case CpuIsa::portable:                                            \
        break;                                                          \
    }                                                                   \
    return &NAME##_portable;                                            \
  }                                                                     \
  }

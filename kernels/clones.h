// OCTET_CLONES before a function: the compiler makes one copy an instruction set and the loader picks the best the
// machine has. For plain loops only, whose results do not depend on the width of the vectors. OCTET_FMA_CLONES has fma
// in its sets too, for loops that call fmaf and little else; it and rint round once, by definition, in every copy.
#pragma once

// The loader picks before a sanitizer is ready, so sanitized builds keep the one portable copy.
#if defined(__x86_64__) && defined(__linux__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__clang__)
#define OCTET_CLONES __attribute__((target_clones("default", "avx2", "avx512f")))
#define OCTET_FMA_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define OCTET_CLONES
#define OCTET_FMA_CLONES
#endif

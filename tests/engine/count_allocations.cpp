// SPDX-License-Identifier: Apache-2.0
#include "tests/engine/count_allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<long> count{0};

void* counted(std::size_t bytes) noexcept {
  ++count;
  return std::malloc(bytes > 0 ? bytes : 1);
}

void* counted(std::size_t bytes, std::align_val_t alignment) noexcept {
  ++count;
  const std::size_t unit = static_cast<std::size_t>(alignment);
  return std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit);
}

void* checked(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

/// Not inlined: GCC would see free() beside an operator new that it did not inline, and warn of a mismatch.
[[gnu::noinline]] void release(void* memory) { std::free(memory); }
}  // namespace

// All forms, as the sanitizers have forms of their own that do not end in ours: an aligned new would go uncounted, and
// a nothrow new (std::stable_sort) would be theirs while its delete is ours.
void* operator new(std::size_t bytes) { return checked(counted(bytes)); }
void* operator new[](std::size_t bytes) { return checked(counted(bytes)); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes); }
void* operator new(std::size_t bytes, std::align_val_t alignment) { return checked(counted(bytes, alignment)); }
void* operator new[](std::size_t bytes, std::align_val_t alignment) { return checked(counted(bytes, alignment)); }
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { release(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }

namespace octet::test {

long allocations() { return count; }

}  // namespace octet::test

// SPDX-License-Identifier: Apache-2.0
// Runs the instructions of AMX, and those of AVX-VNNI where a processor with AVX2 lacks them, on any x86-64: a library
// for LD_PRELOAD. A processor raises SIGILL at an instruction that it does not know; the handler here decodes it, does
// what the manual says to the thread's registers and memory, and goes on behind it. So the kernels' own machine code
// runs, bit for bit, but slowly.
//
// The program asks glibc which features are active and Linux for the permission to use tiles; both questions are
// answered here with yes for what is emulated, and passed on for what is not, which then runs as it is.
//
// Where the processor has AMX, Linux raises SIGILL too, since it was not asked for the permission. LDTILECFG and
// TILERELEASE need none: the processor runs them, and a signal's frame has what they set.
#include <cpuid.h>
#include <dlfcn.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>

#define _Bool bool  // the header is of C
#include <sys/platform/x86.h>
#undef _Bool

#include "tests/x86_emulator/instruction.h"
#include "tests/x86_emulator/tiles.h"

namespace octet::x86_emulator {
namespace {

// The signal frame's XSAVE area: header and components in the standard format (volume 1, section 13.4). Linux puts the
// mask of saved components behind a magic number into bytes that FXSAVE leaves free (asm/sigcontext.h).
constexpr int kSoftware = 464, kHeader = 512, kXmm = 160;
constexpr uint32_t kMagic = 0x46505853;
constexpr int kYmmComponent = 2, kZmmComponent = 6, kTileConfigComponent = 17;

int component_offset(int component) {
  unsigned a = 0, offset = 0, c = 0, d = 0;
  __cpuid_count(0xD, component, a, offset, c, d);
  return static_cast<int>(offset);
}

struct Processor {
  bool vectors = false;          ///< whether AVX-VNNI is emulated
  bool own_tile_config = false;  ///< whether the processor runs LDTILECFG
  int ymm = 0, zmm = 0;          ///< offsets in the XSAVE area of the upper halves; 0: no such component
  int tile_config = 0;           ///< offset in the XSAVE area of what LDTILECFG set
};
Processor processor;

// initial-exec: access calls no function, as a signal handler must not.
__attribute__((tls_model("initial-exec"))) constinit thread_local Tiles tiles;

/// The vector registers in a signal frame.
class Vectors {
 public:
  explicit Vectors(void* frame) : area_(static_cast<uint8_t*>(frame)) {
    uint32_t magic;
    std::memcpy(&magic, area_ + kSoftware, 4);
    std::memcpy(&saved_, area_ + kSoftware + 8, 8);
    usable_ = magic == kMagic && (saved_ >> kYmmComponent & 1) != 0;
    if (!usable_) return;
    enter(1, kXmm, 256);
    enter(kYmmComponent, processor.ymm, 256);
    if ((saved_ >> kZmmComponent & 1) != 0) enter(kZmmComponent, processor.zmm, 512);
  }
  bool usable() const { return usable_; }

  void read(int number, uint8_t (&value)[32]) const {
    std::memcpy(value, area_ + kXmm + 16 * number, 16);
    std::memcpy(value + 16, area_ + processor.ymm + 16 * number, 16);
  }
  /// Writes 16 or 32 bytes; like every VEX-encoded instruction it clears what is above.
  void write(int number, const uint8_t (&value)[32], int bytes) {
    std::memcpy(area_ + kXmm + 16 * number, value, 16);
    std::memset(area_ + processor.ymm + 16 * number, 0, 16);
    if (bytes == 32) std::memcpy(area_ + processor.ymm + 16 * number, value + 16, 16);
    if ((saved_ >> kZmmComponent & 1) != 0) std::memset(area_ + processor.zmm + 32 * number, 0, 32);
  }

 private:
  /// Makes a component that the processor left out, because it held zeros, one that it will restore.
  void enter(int component, int offset, int bytes) {
    uint64_t present;
    std::memcpy(&present, area_ + kHeader, 8);
    if ((present >> component & 1) != 0) return;
    std::memset(area_ + offset, 0, bytes);
    present |= uint64_t{1} << component;
    std::memcpy(area_ + kHeader, &present, 8);
  }

  uint8_t* area_;
  uint64_t saved_ = 0;
  bool usable_ = false;
};

// Opcodes. vpbroadcastd is AVX2's own: where it stands between products it is done here as well, so that one signal
// serves a whole step of a loop.
constexpr int kByteProducts = 0x50, kWordProducts = 0x52, kBroadcast = 0x58;

/// vpdpbusd: the first factor's bytes are unsigned, the second's signed.
void add_byte_products(uint8_t (&sums)[32], const uint8_t (&x)[32], const uint8_t (&w)[32]) {
  for (int lane = 0; lane < 8; ++lane) {
    uint32_t sum;
    std::memcpy(&sum, sums + 4 * lane, 4);
    for (int i = 4 * lane; i < 4 * lane + 4; ++i) sum += static_cast<uint32_t>(x[i] * static_cast<int8_t>(w[i]));
    std::memcpy(sums + 4 * lane, &sum, 4);
  }
}

/// vpdpwssd: both factors are signed words.
void add_word_products(uint8_t (&sums)[32], const uint8_t (&x)[32], const uint8_t (&w)[32]) {
  for (int lane = 0; lane < 8; ++lane) {
    uint32_t sum;
    int16_t a[2], b[2];
    std::memcpy(&sum, sums + 4 * lane, 4);
    std::memcpy(a, x + 4 * lane, 4);
    std::memcpy(b, w + 4 * lane, 4);
    sum += static_cast<uint32_t>(a[0] * b[0]) + static_cast<uint32_t>(a[1] * b[1]);
    std::memcpy(sums + 4 * lane, &sum, 4);
  }
}

bool run_vector(const Instruction& i, void* frame) {
  if (!processor.vectors || i.prefix != 1 || i.wide) return false;
  Vectors vectors(frame);
  if (!vectors.usable()) return false;
  uint8_t sums[32], x[32], w[32] = {};
  const auto* from = reinterpret_cast<const void*>(i.address + static_cast<uint64_t>(i.index));
  if (!i.memory) vectors.read(i.rm, w);
  if (i.opcode == kBroadcast) {
    if (i.memory) std::memcpy(w, from, 4);
    for (int lane = 0; lane < 8; ++lane) std::memcpy(sums + 4 * lane, w, 4);
  } else {
    if (i.memory) std::memcpy(w, from, i.bytes);
    vectors.read(i.reg, sums);
    vectors.read(i.vvvv, x);
    i.opcode == kByteProducts ? add_byte_products(sums, x, w) : add_word_products(sums, x, w);
  }
  vectors.write(i.reg, sums, i.bytes);
  return true;
}

/// Takes over the configuration that the processor was given, if it is another one.
bool follow_configuration(const void* frame) {
  const auto* area = static_cast<const uint8_t*>(frame);
  uint64_t present;
  std::memcpy(&present, area + kHeader, 8);
  TileConfig config;  // released
  if ((present >> kTileConfigComponent & 1) != 0) std::memcpy(&config, area + processor.tile_config, sizeof(config));
  return std::memcmp(&config, &tiles.config(), sizeof(config)) == 0 || tiles.configure(config);
}

bool run_configuration(const Instruction& i) {
  if (i.prefix == 3) return !i.memory && i.rm == 0 && tiles.zero(i.reg);
  if (i.reg != 0) return false;
  const uint64_t address = i.address + static_cast<uint64_t>(i.index);
  if (i.prefix == 0 && !i.memory) {
    if (i.rm != 0) return false;
    tiles.release();
    return true;
  }
  if (!i.memory) return false;
  TileConfig config;
  if (i.prefix == 0) {
    std::memcpy(&config, reinterpret_cast<const void*>(address), sizeof(config));
    return tiles.configure(config);
  }
  if (i.prefix != 1) return false;
  std::memcpy(reinterpret_cast<void*>(address), &tiles.config(), sizeof(config));
  return true;
}

bool run_tile(const Instruction& i, const void* frame) {
  if (i.wide || i.bytes != 16) return false;
  if (processor.own_tile_config && !follow_configuration(frame)) return false;
  switch (i.opcode) {
    case 0x49:
      // Not done here if the processor does it, which would know nothing of it.
      if (processor.own_tile_config && i.prefix != 3) return false;
      return i.vvvv == 0 && run_configuration(i);
    case 0x4B:
      if (!i.memory || !i.has_sib || i.vvvv != 0) return false;
      if (i.prefix == 2) return tiles.store(i.reg, reinterpret_cast<uint8_t*>(i.address), i.index);
      return i.prefix != 0 && tiles.load(i.reg, reinterpret_cast<const uint8_t*>(i.address), i.index);
    case 0x5E:
      if (i.memory) return false;
      if (i.prefix == 0) return tiles.multiply<uint8_t, uint8_t>(i.reg, i.rm, i.vvvv);
      if (i.prefix == 1) return tiles.multiply<uint8_t, int8_t>(i.reg, i.rm, i.vvvv);
      if (i.prefix == 2) return tiles.multiply<int8_t, uint8_t>(i.reg, i.rm, i.vvvv);
      return tiles.multiply<int8_t, int8_t>(i.reg, i.rm, i.vvvv);
    default:
      return false;
  }
}

/// Runs the instruction at the frame's instruction pointer, if it is one of those emulated, and steps over it.
bool run_next(ucontext_t& context) {
  auto& g = context.uc_mcontext.gregs;
  const int order[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                         REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
  uint64_t registers[16];
  for (int i = 0; i < 16; ++i) registers[i] = static_cast<uint64_t>(g[order[i]]);
  Instruction instruction;
  if (!decode(reinterpret_cast<const uint8_t*>(g[REG_RIP]), registers, instruction)) return false;
  const int opcode = instruction.opcode;
  const bool vector = opcode == kByteProducts || opcode == kWordProducts || opcode == kBroadcast;
  if (!(vector ? run_vector(instruction, context.uc_mcontext.fpregs)
               : run_tile(instruction, context.uc_mcontext.fpregs)))
    return false;
  g[REG_RIP] += instruction.length;
  return true;
}

void on_illegal_instruction(int, siginfo_t*, void* context) {
  if (!run_next(*static_cast<ucontext_t*>(context))) {
    std::signal(SIGILL, SIG_DFL);  // the instruction runs again, and ends the program as it would without this library
    return;
  }
  while (run_next(*static_cast<ucontext_t*>(context))) {
  }
}

using LeafFunction = const cpuid_feature* (*)(unsigned);

/// glibc's own answer.
const cpuid_feature* real_leaf(unsigned leaf) {
  static const auto function = reinterpret_cast<LeafFunction>(::dlsym(RTLD_NEXT, "__x86_get_cpuid_feature_leaf"));
  return function(leaf);
}

bool active(unsigned feature) {
  constexpr unsigned kBits = 32 * 4;
  const unsigned bit = feature % kBits;
  return (real_leaf(feature / kBits)->active_array[bit / 32] >> bit % 32 & 1) != 0;
}

void pretend(cpuid_feature& leaf, unsigned number, unsigned feature) {
  constexpr unsigned kBits = 32 * 4;
  if (feature / kBits != number) return;
  const unsigned bit = feature % kBits;
  leaf.cpuid_array[bit / 32] |= 1u << bit % 32;
  leaf.active_array[bit / 32] |= 1u << bit % 32;
}

__attribute__((constructor)) void start() {
  processor.own_tile_config = active(x86_cpu_AMX_INT8);
  processor.vectors = !active(x86_cpu_AVX_VNNI) && active(x86_cpu_AVX2);
  processor.ymm = component_offset(kYmmComponent);
  processor.zmm = component_offset(kZmmComponent);
  processor.tile_config = component_offset(kTileConfigComponent);
  struct sigaction action = {};
  action.sa_sigaction = on_illegal_instruction;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  ::sigaction(SIGILL, &action, nullptr);
  ::setenv("OCTET_TEST_EMULATED", "1", 0);  // tests may try fewer cases
}

}  // namespace
}  // namespace octet::x86_emulator

extern "C" {

const cpuid_feature* __x86_get_cpuid_feature_leaf(unsigned number) {
  using namespace octet::x86_emulator;
  constexpr unsigned kLeaves = 16;  // more than glibc has
  static thread_local cpuid_feature leaves[kLeaves];
  if (number >= kLeaves) return real_leaf(number);
  cpuid_feature& leaf = leaves[number] = *real_leaf(number);
  if (!active(x86_cpu_AMX_INT8)) {
    pretend(leaf, number, x86_cpu_AMX_TILE);
    pretend(leaf, number, x86_cpu_AMX_INT8);
  }
  if (active(x86_cpu_AVX2)) pretend(leaf, number, x86_cpu_AVX_VNNI);
  return &leaf;
}

int arch_prctl(int code, unsigned long argument) {
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM, asm/prctl.h
  if (code == kRequestPermission) return 0;
  return static_cast<int>(::syscall(SYS_arch_prctl, code, argument));
}

}  // extern "C"

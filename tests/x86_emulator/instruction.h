// SPDX-License-Identifier: Apache-2.0
// Decoding of VEX-encoded instructions of opcode map 0F38 (Intel's Software Developer's Manual, volume 2, sections 2.1
// and 2.3), which all of AMX and AVX-VNNI are.
#pragma once

#include <cstdint>
#include <cstring>

namespace octet::x86_emulator {

struct Instruction {
  int opcode = 0;
  int prefix = 0;                 ///< VEX.pp: 0 none, 1 is 66, 2 is F3, 3 is F2
  bool wide = false;              ///< VEX.W
  int bytes = 16;                 ///< of a vector: 16 or 32 (VEX.L)
  int reg = 0, vvvv = 0, rm = 0;  ///< numbers of registers; rm counts where the operand is no memory
  bool memory = false, has_sib = false;
  uint64_t address = 0;  ///< of a memory operand; for tiles without index * scale
  int64_t index = 0;     ///< index * scale of the SIB byte
  int length = 0;        ///< bytes of the instruction
};

/// Decodes the instruction at `code`; registers: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15. Returns false if it
/// is not of map 0F38 with a VEX prefix of three bytes.
inline bool decode(const uint8_t* code, const uint64_t (&registers)[16], Instruction& out) {
  if (code[0] != 0xC4 || (code[1] & 0x1F) != 2) return false;
  const int r = (~code[1] >> 7 & 1) << 3, x = (~code[1] >> 6 & 1) << 3, b = (~code[1] >> 5 & 1) << 3;
  out = Instruction{};
  out.wide = (code[2] & 0x80) != 0;
  out.vvvv = ~code[2] >> 3 & 15;
  out.bytes = (code[2] & 4) != 0 ? 32 : 16;
  out.prefix = code[2] & 3;
  out.opcode = code[3];
  const int mod = code[4] >> 6, rm = code[4] & 7;
  out.reg = (code[4] >> 3 & 7) | r;
  out.rm = rm | b;
  out.length = 5;
  if (mod == 3) return true;
  out.memory = true;
  out.has_sib = rm == 4;
  bool base = true, relative = mod == 0 && rm == 5;
  int base_register = rm | b;
  if (out.has_sib) {
    const int sib = code[out.length++], index = (sib >> 3 & 7) | x;
    base_register = (sib & 7) | b;
    base = !(mod == 0 && (sib & 7) == 5);
    if (index != 4) out.index = static_cast<int64_t>(registers[index]) << (sib >> 6);
  }
  int64_t displacement = 0;
  if (mod == 1) {
    displacement = static_cast<int8_t>(code[out.length++]);
  } else if (mod == 2 || relative || !base) {
    int32_t four;
    std::memcpy(&four, code + out.length, 4);
    displacement = four;
    out.length += 4;
  }
  if (relative) {
    out.address = reinterpret_cast<uint64_t>(code) + out.length;
  } else if (base) {
    out.address = registers[base_register];
  }
  out.address += static_cast<uint64_t>(displacement);
  return true;
}

}  // namespace octet::x86_emulator

// SPDX-License-Identifier: Apache-2.0
// The part of Python's pickle language that torch.save uses: instructions, named as in pickletools, and the classes and
// functions that a file may refer to.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace octet {

enum Opcode : uint8_t {
  kMark = '(',
  kStop = '.',
  kNone = 'N',
  kInt32 = 'J',
  kInt8 = 'K',
  kInt16 = 'M',
  kFloat = 'G',
  kUnicode = 'X',
  kString = 'T',
  kShortString = 'U',
  kBytes = 'B',
  kShortBytes = 'C',
  kEmptyList = ']',
  kEmptyTuple = ')',
  kEmptyDict = '}',
  kAppend = 'a',
  kAppends = 'e',
  kTuple = 't',
  kSetItem = 's',
  kSetItems = 'u',
  kPut = 'q',
  kLongPut = 'r',
  kGet = 'h',
  kLongGet = 'j',
  kGlobal = 'c',
  kReduce = 'R',
  kBuild = 'b',
  kPersistentId = 'Q',
  kProtocol = 0x80,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kTrue = 0x88,
  kFalse = 0x89,
  kLong1 = 0x8a,
  kShortUnicode = 0x8c,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
};

inline constexpr std::string_view kOrderedDict = "collections OrderedDict";
inline constexpr std::string_view kRebuildTensor = "torch._utils _rebuild_tensor";
inline constexpr std::string_view kRebuildTensor2 = "torch._utils _rebuild_tensor_v2";
inline constexpr std::string_view kRebuildParameter = "torch._utils _rebuild_parameter";
inline constexpr std::string_view kTypeTag = "torch.jit._pickle restore_type_tag";  ///< (value, type), from LibTorch

/// Whether a pickle may refer to this class or function: storages, what rebuilds tensors, and OrderedDict.
inline bool known_global(std::string_view name) {
  constexpr std::string_view kPrefix = "torch ", kSuffix = "Storage";
  constexpr std::array<std::string_view, 10> kTypes = {"Float", "Double", "Half", "BFloat16", "Long",
                                                       "Int",   "Short",  "Char", "Byte",     "Bool"};
  constexpr std::array kFunctions = {kOrderedDict, kRebuildTensor, kRebuildTensor2, kRebuildParameter, kTypeTag};
  if (std::find(kFunctions.begin(), kFunctions.end(), name) != kFunctions.end()) return true;
  return std::any_of(kTypes.begin(), kTypes.end(),
                     [&](std::string_view type) { return name == fmt::format("{}{}{}", kPrefix, type, kSuffix); });
}

}  // namespace octet

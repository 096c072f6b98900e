// SPDX-License-Identifier: Apache-2.0
#include "src/net/import/pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "src/base/error.h"

namespace octet {
namespace {

// The part of Python's pickle language that torch.save uses: instructions, named as in pickletools, and the classes and
// functions that a file may refer to.

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

constexpr std::string_view kOrderedDict = "collections OrderedDict";
constexpr std::string_view kRebuildTensor = "torch._utils _rebuild_tensor";
constexpr std::string_view kRebuildTensor2 = "torch._utils _rebuild_tensor_v2";
constexpr std::string_view kRebuildParameter = "torch._utils _rebuild_parameter";
constexpr std::string_view kTypeTag = "torch.jit._pickle restore_type_tag";  ///< (value, type), from LibTorch

/// Whether a pickle may refer to this class or function: storages, what rebuilds tensors, and OrderedDict.
bool known_global(std::string_view name) {
  constexpr std::string_view kPrefix = "torch ", kSuffix = "Storage";
  constexpr std::array<std::string_view, 10> kTypes = {"Float", "Double", "Half", "BFloat16", "Long",
                                                       "Int",   "Short",  "Char", "Byte",     "Bool"};
  constexpr std::array kFunctions = {kOrderedDict, kRebuildTensor, kRebuildTensor2, kRebuildParameter, kTypeTag};
  if (std::find(kFunctions.begin(), kFunctions.end(), name) != kFunctions.end()) return true;
  return std::any_of(kTypes.begin(), kTypes.end(),
                     [&](std::string_view type) { return name == fmt::format("{}{}{}", kPrefix, type, kSuffix); });
}

using Kind = PickleValue::Kind;

constexpr size_t kMaxValues = size_t{1} << 20;  ///< a state_dict of 1,000 tensors has about 25,000
constexpr size_t kMaxStack = size_t{1} << 20;
constexpr size_t kStorageItems = 6;  ///< in a persistent id; the last one is optional

class Unpickler {
 public:
  Unpickler(std::string_view bytes, const std::string& where) : bytes_(bytes), where_(where) {}

  Pickle run() {
    while (step(read<uint8_t>())) {
    }
    if (!marks_.empty()) fail("ends within a container");
    Pickle pickle;
    pickle.root = pop();
    pickle.values = std::move(values_);
    pickle.size = position_;
    return pickle;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw data_error(fmt::format("{}: pickle, byte {}: {}", where_, position_, what));
  }

  std::string_view read_bytes(uint64_t count) {
    if (count > bytes_.size() - position_) fail("ends too early (is the file truncated?)");
    const std::string_view bytes = bytes_.substr(position_, count);
    position_ += count;
    return bytes;
  }

  template <typename T>
  T read() {
    T value;
    std::memcpy(&value, read_bytes(sizeof(T)).data(), sizeof(T));
    return value;
  }

  std::string_view read_line() {
    const size_t end = bytes_.find('\n', position_);
    if (end == std::string_view::npos) fail("ends too early (is the file truncated?)");
    const std::string_view line = bytes_.substr(position_, end - position_);
    position_ = end + 1;
    return line;
  }

  double read_big_endian_double() {
    std::array<char, 8> bytes;
    std::memcpy(bytes.data(), read_bytes(8).data(), 8);
    std::reverse(bytes.begin(), bytes.end());
    return std::bit_cast<double>(bytes);
  }

  /// Reads a number in two's complement, little endian, of up to 8 bytes.
  int64_t read_long() {
    const auto count = read<uint8_t>();
    if (count > 8) fail("an integer of more than 64 bits");
    const std::string_view bytes = read_bytes(count);
    uint64_t value = count > 0 && (bytes.back() & 0x80) != 0 ? ~uint64_t{0} : 0;
    for (size_t i = count; i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[i]);
    return static_cast<int64_t>(value);
  }

  void push(uint32_t index) {
    if (stack_.size() >= kMaxStack) fail("more values than a weight file needs");
    stack_.push_back(index);
  }

  void push_new(PickleValue value) {
    if (values_.size() >= kMaxValues) fail("more values than a weight file needs");
    values_.push_back(std::move(value));
    push(static_cast<uint32_t>(values_.size() - 1));
  }

  void push_integer(int64_t value) { push_new({.kind = Kind::integer, .integer = value}); }
  void push_text(std::string_view text) { push_new({.kind = Kind::text, .text = std::string(text)}); }

  /// Returns the bottom of the current container on the stack: values below the last mark belong to outer ones.
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }

  uint32_t top() const {
    if (stack_.size() <= floor()) fail("takes a value from an empty stack");
    return stack_.back();
  }

  uint32_t pop() {
    const uint32_t index = top();
    stack_.pop_back();
    return index;
  }

  PickleValue& top(Kind kind, const char* what) {
    PickleValue& value = values_[top()];
    if (value.kind != kind) fail(fmt::format("expects {}", what));
    return value;
  }

  std::vector<uint32_t> pop_to_mark() {
    if (marks_.empty()) fail("no mark");
    std::vector<uint32_t> items(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }

  void push_tuple(size_t count) {
    PickleValue tuple{.kind = Kind::tuple};
    for (size_t i = 0; i < count; ++i) tuple.items.push_back(pop());
    std::reverse(tuple.items.begin(), tuple.items.end());
    push_new(std::move(tuple));
  }

  void set_items(const std::vector<uint32_t>& items) {
    PickleValue& dict = top(Kind::dict, "a dictionary");
    if (items.size() % 2 != 0) fail("a key without a value");
    dict.items.insert(dict.items.end(), items.begin(), items.end());
  }

  void append(const std::vector<uint32_t>& items) {
    PickleValue& list = top(Kind::list, "a list");
    list.items.insert(list.items.end(), items.begin(), items.end());
  }

  void put(uint32_t slot) { memo_[slot] = top(); }

  void get(uint32_t slot) {
    const auto found = memo_.find(slot);
    if (found == memo_.end()) fail(fmt::format("value {} was never stored", slot));
    push(found->second);
  }

  void push_global(const std::string& module, const std::string& name) {
    const std::string global = module + " " + name;
    if (!known_global(global)) {
      fail(
          fmt::format("refers to '{}.{}', and only tensors and plain containers are read; save the weights alone: "
                      "torch.save(model.state_dict(), FILE)",
                      module, name));
    }
    push_new({.kind = Kind::global, .text = global});
  }

  void reduce() {
    const PickleValue& arguments = values_[pop()];
    const PickleValue& function = values_[pop()];
    if (arguments.kind != Kind::tuple || function.kind != Kind::global) fail("calls something that is no function");
    const size_t count = arguments.items.size();
    if (function.text == kOrderedDict) {
      push_ordered_dict(arguments);
    } else if ((function.text == kRebuildTensor || function.text == kRebuildTensor2) && count >= 4) {
      push_new({.kind = Kind::tensor, .items = {arguments.items.begin(), arguments.items.begin() + 4}});
    } else if (function.text == kRebuildParameter && count >= 1 && values_[arguments.items[0]].kind == Kind::tensor) {
      push(arguments.items[0]);
    } else if (function.text == kTypeTag && count == 2) {
      push(arguments.items[0]);
    } else {
      fail(fmt::format("'{}' with {} arguments", function.text, count));
    }
  }

  /// Makes OrderedDict() or, from Python 2, OrderedDict([[key, value], ...]).
  void push_ordered_dict(const PickleValue& arguments) {
    PickleValue dict{.kind = Kind::dict};
    if (!arguments.items.empty()) {
      const PickleValue& pairs = values_[arguments.items[0]];
      copied_ += pairs.items.size();
      if (copied_ > kMaxValues) fail("more values than a weight file needs");
      for (const uint32_t index : pairs.items) {
        const PickleValue& pair = values_[index];
        if (pairs.kind != Kind::list || pair.items.size() != 2) fail("an OrderedDict of something else than pairs");
        dict.items.insert(dict.items.end(), pair.items.begin(), pair.items.end());
      }
    }
    push_new(std::move(dict));
  }

  void push_storage() {
    const PickleValue& id = values_[pop()];
    if (id.kind != Kind::tuple || id.items.empty() || values_[id.items[0]].text != "storage") {
      fail("a persistent id that is no storage");
    }
    const auto end = id.items.begin() + static_cast<std::ptrdiff_t>(std::min(id.items.size(), kStorageItems));
    push_new({.kind = Kind::storage, .items = {id.items.begin(), end}});
  }

  /// Drops the attributes of a state_dict (_metadata: versions of its modules), which are not needed.
  void build() {
    pop();
    top(Kind::dict, "a dictionary");
  }

  /// Runs one instruction. Returns false after STOP.
  bool step(uint8_t opcode) {
    switch (opcode) {
      case kStop:
        return false;
      case kProtocol:
        if (const auto version = read<uint8_t>(); version < 2 || version > 5) {
          fail(fmt::format("protocol {}", version));
        }
        break;
      case kFrame:
        read<uint64_t>();
        break;
      case kMark:
        if (marks_.size() >= kMaxStack) fail("more values than a weight file needs");
        marks_.push_back(stack_.size());
        break;
      case kNone:
        push_new({});
        break;
      case kTrue:
      case kFalse:
        push_new({.kind = Kind::boolean, .integer = opcode == kTrue});
        break;
      case kInt8:
        push_integer(read<uint8_t>());
        break;
      case kInt16:
        push_integer(read<uint16_t>());
        break;
      case kInt32:
        push_integer(read<int32_t>());
        break;
      case kLong1:
        push_integer(read_long());
        break;
      case kFloat:
        push_new({.kind = Kind::real, .real = read_big_endian_double()});
        break;
      case kUnicode:
      case kString:
      case kBytes:
        push_text(read_bytes(read<uint32_t>()));
        break;
      case kShortUnicode:
      case kShortString:
      case kShortBytes:
        push_text(read_bytes(read<uint8_t>()));
        break;
      default:
        step_container(opcode);
    }
    return true;
  }

  void step_container(uint8_t opcode) {
    switch (opcode) {
      case kEmptyList:
        return push_new({.kind = Kind::list});
      case kEmptyTuple:
        return push_new({.kind = Kind::tuple});
      case kEmptyDict:
        return push_new({.kind = Kind::dict});
      case kTuple:
        return push_new({.kind = Kind::tuple, .items = pop_to_mark()});
      case kTuple1:
      case kTuple2:
      case kTuple3:
        return push_tuple(static_cast<size_t>(opcode - kTuple1) + 1);
      case kAppend:
        return append({pop()});
      case kAppends:
        return append(pop_to_mark());
      case kSetItem: {
        const uint32_t value = pop(), key = pop();
        return set_items({key, value});
      }
      case kSetItems:
        return set_items(pop_to_mark());
      case kPut:
        return put(read<uint8_t>());
      case kLongPut:
        return put(read<uint32_t>());
      case kMemoize:
        return put(static_cast<uint32_t>(memo_.size()));
      case kGet:
        return get(read<uint8_t>());
      case kLongGet:
        return get(read<uint32_t>());
      case kGlobal: {
        const std::string module(read_line()), name(read_line());
        return push_global(module, name);
      }
      case kStackGlobal: {
        const std::string name = values_[pop()].text, module = values_[pop()].text;
        return push_global(module, name);
      }
      case kReduce:
        return reduce();
      case kBuild:
        return build();
      case kPersistentId:
        return push_storage();
      default:
        fail(fmt::format("instruction 0x{:02x} is not used by weight files", opcode));
    }
  }

  const std::string_view bytes_;
  const std::string& where_;
  size_t position_ = 0;
  std::vector<PickleValue> values_;
  std::vector<uint32_t> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint32_t, uint32_t> memo_;
  size_t copied_ = 0;  ///< items of containers made from other containers
};

}  // namespace

Pickle parse_pickle(std::string_view bytes, const std::string& where) { return Unpickler(bytes, where).run(); }

}  // namespace octet

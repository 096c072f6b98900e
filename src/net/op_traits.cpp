// SPDX-License-Identifier: Apache-2.0
#include "src/net/op_traits.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/base/error.h"
#include "src/base/names.h"
#include "src/net/shapes.h"

namespace octet {
namespace {

constexpr size_t kMany = kMaxNodes;
using I = Int8Op;
using M = Multipliers;
constexpr bool Y = true, N = false;

// In the order of Op. The flags: windowed, grouped, has_factor, weighted, passes_codes_on, keeps_sign, passes_scale_on.
// A relu without a layer before it becomes the clamp of a requantize (src/quant/convert.cpp). A convolution's second
// input is the residual that fuse put into it.
// clang-format off
constexpr std::array<OpTraits, 25> kOps = {{
    // op                 name               int8                 inputs    w  g  f  w  c  s  s  multipliers         version
    {Op::input,           "input",           I::input,            0, 0,     N, N, N, N, N, N, N, M::none,            1},
    {Op::conv2d,          "conv2d",          I::conv2d,           1, 2,     Y, Y, N, Y, N, N, N, M::one_per_channel, 1},
    {Op::batch_norm,      "batch_norm",      std::nullopt,        1, 1,     N, N, N, N, N, N, N, M::none,            1},
    {Op::relu,            "relu",            std::nullopt,        1, 1,     N, N, N, N, N, Y, Y, M::none,            1},
    {Op::relu6,           "relu6",           std::nullopt,        1, 1,     N, N, N, N, N, Y, Y, M::none,            1},
    {Op::add,             "add",             I::add,              2, 2,     N, N, N, N, N, Y, N, M::one_per_input,   1},
    {Op::concat,          "concat",          I::concat,           2, kMany, N, N, N, N, N, Y, N, M::one_per_input,   1},
    {Op::max_pool,        "max_pool",        I::max_pool,         1, 1,     Y, N, N, N, Y, Y, Y, M::none,            1},
    {Op::avg_pool,        "avg_pool",        I::avg_pool,         1, 1,     Y, N, N, N, N, Y, Y, M::one,             1},
    {Op::global_avg_pool, "global_avg_pool", I::global_avg_pool,  1, 1,     N, N, N, N, N, Y, Y, M::one,             1},
    {Op::flatten,         "flatten",         I::flatten,          1, 1,     N, N, N, N, Y, Y, Y, M::none,            1},
    {Op::linear,          "linear",          I::linear,           1, 1,     N, N, N, Y, N, N, N, M::one_per_channel, 1},
    {Op::dropout,         "dropout",         std::nullopt,        1, 1,     N, N, N, N, N, Y, Y, M::none,            1},
    {Op::subsample_pad,   "subsample_pad",   I::subsample_pad,    1, 1,     Y, N, N, N, Y, Y, N, M::none,            1},
    {Op::requantize,      "requantize",      I::requantize,       1, 1,     N, N, N, N, N, Y, Y, M::one,             1},
    {Op::mul,             "mul",             I::mul,              2, 2,     N, N, N, N, N, Y, N, M::one,             2},
    {Op::lookup,          "lookup",          I::lookup,           1, 1,     N, N, N, N, N, Y, N, M::none,            2},
    {Op::slice,           "slice",           I::slice,            1, 1,     N, N, N, N, Y, Y, N, M::none,            3},
    {Op::resize,          "resize",          I::resize,           1, 1,     N, N, Y, N, Y, Y, Y, M::none,            3},
    {Op::channel_shuffle, "channel_shuffle", I::channel_shuffle,  1, 1,     N, Y, N, N, Y, Y, N, M::none,            4},
    {Op::depth_to_space,  "depth_to_space",  I::depth_to_space,   1, 1,     N, N, Y, N, Y, Y, N, M::none,            4},
    {Op::resize_bilinear, "resize_bilinear", I::resize_bilinear,  1, 1,     N, N, Y, N, N, Y, Y, M::one,             5},
    {Op::matmul,          "matmul",          I::matmul,           2, 2,     N, Y, N, N, N, Y, N, M::one,             8},
    {Op::softmax,         "softmax",         I::softmax,          1, 1,     N, Y, N, N, N, Y, N, M::one,             8},
    {Op::prelu,           "prelu",           I::prelu,            1, 1,     N, Y, N, N, N, Y, Y, M::slopes,         10},
}};
// clang-format on

constexpr bool in_order() {
  for (size_t i = 0; i < kOps.size(); ++i)
    if (static_cast<size_t>(kOps[i].op) != i) return false;
  return true;
}
static_assert(in_order());

const OpTraits* find(std::string_view name) {
  const auto found = std::find_if(kOps.begin(), kOps.end(), [&](const OpTraits& op) { return op.name == name; });
  return found == kOps.end() ? nullptr : found;
}

}  // namespace

const OpTraits& traits(Op op) {
  const auto index = static_cast<size_t>(op);
  if (index >= kOps.size()) throw usage_error(fmt::format("op number {} does not exist", index));
  return kOps[index];
}

const OpTraits& traits(Int8Op op) {
  const auto found = std::find_if(kOps.begin(), kOps.end(), [&](const OpTraits& row) { return row.int8 == op; });
  if (found == kOps.end()) throw data_error(fmt::format("int8 op number {} does not exist", static_cast<int>(op)));
  return *found;
}

const std::vector<Op>& all_ops() {
  static const std::vector<Op> all = [] {
    std::vector<Op> ops;
    for (const OpTraits& op : kOps) ops.push_back(op.op);
    return ops;
  }();
  return all;
}

std::string_view op_name(Op op) { return traits(op).name; }

std::string_view int8_op_name(Int8Op op) { return traits(op).name; }

Op op_from_name(std::string_view name) {
  if (const OpTraits* found = find(name)) return found->op;
  std::vector<std::string_view> names;
  for (const OpTraits& op : kOps) names.push_back(op.name);
  throw usage_error(fmt::format("unknown op '{}'{}", name, did_you_mean(name, names)));
}

Int8Op int8_op_from_name(std::string_view name) {
  if (const OpTraits* found = find(name); found && found->int8) return *found->int8;
  throw data_error(fmt::format("unknown int8 op '{}'", name));
}

bool has_weight(Op op) { return traits(op).weighted; }

bool activates(const Node& node) {
  return node.activation != Activation::none || node.op == Op::relu || node.op == Op::relu6;
}

std::string arity_fault(const OpTraits& op, size_t inputs) {
  if (inputs >= op.min_inputs && inputs <= op.max_inputs) return "";
  return fmt::format("{} inputs, needs {}", inputs,
                     op.min_inputs == op.max_inputs ? fmt::format("{}", op.min_inputs)
                                                    : fmt::format("{} to {}", op.min_inputs, op.max_inputs));
}

}  // namespace octet

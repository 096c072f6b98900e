#include "src/graph/int8_graph.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <string>
#include <utility>

#include "src/common/error.h"

namespace octet {
namespace {

constexpr std::array<std::pair<Int8Op, std::string_view>, 11> kOpNames = {{
    {Int8Op::input, "input"},
    {Int8Op::conv2d, "conv2d"},
    {Int8Op::linear, "linear"},
    {Int8Op::add, "add"},
    {Int8Op::concat, "concat"},
    {Int8Op::max_pool, "max_pool"},
    {Int8Op::avg_pool, "avg_pool"},
    {Int8Op::global_avg_pool, "global_avg_pool"},
    {Int8Op::subsample_pad, "subsample_pad"},
    {Int8Op::flatten, "flatten"},
    {Int8Op::requantize, "requantize"},
}};

}  // namespace

std::string_view int8_op_name(Int8Op op) {
  for (const auto& [value, name] : kOpNames) {
    if (value == op) return name;
  }
  throw data_error(fmt::format("int8 op number {} does not exist", static_cast<int>(op)));
}

Int8Op int8_op_from_name(std::string_view name) {
  for (const auto& [value, candidate] : kOpNames) {
    if (candidate == name) return value;
  }
  throw data_error(fmt::format("unknown int8 op '{}'", name));
}

long multiply_adds(const Int8Graph& graph) {
  long total = 0;
  for (const Int8Node& node : graph.nodes) {
    if (node.op != Int8Op::conv2d && node.op != Int8Op::linear) continue;
    // Every output channel owns weight.size() / K weights, each used once for every output pixel.
    total += static_cast<long>(node.weight.size()) * node.shape.h * node.shape.w;
  }
  return total;
}

std::string code_type(const QParams& q) {
  return (q.is_signed() ? "s" : "u") + std::to_string(std::bit_width(static_cast<unsigned>(q.quant_max - q.quant_min)));
}

std::vector<uint8_t> input_table(const Int8Graph& graph, int channel) {
  const auto c = static_cast<size_t>(channel);
  const float mean = graph.preprocessing.mean.at(c);
  const float std = graph.preprocessing.std.at(c);
  const QParams& out = graph.nodes.front().out;
  std::vector<uint8_t> table(256);
  for (size_t pixel = 0; pixel < table.size(); ++pixel) {
    table[pixel] = static_cast<uint8_t>(quantize(normalize_pixel(static_cast<uint8_t>(pixel), mean, std), out));
  }
  return table;
}

}  // namespace octet

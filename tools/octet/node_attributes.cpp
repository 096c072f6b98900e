#include "tools/octet/node_attributes.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace octet::cli {
namespace {

/// "2", or "2x1" where they differ.
std::string both(int vertical, int horizontal) {
  return vertical == horizontal ? fmt::format("{}", vertical) : fmt::format("{}x{}", vertical, horizontal);
}

std::string text_of(const Padding& pad) {
  if (pad.is_even()) return both(pad.top, pad.left);
  return fmt::format("{},{},{},{}", pad.top, pad.left, pad.bottom, pad.right);
}

std::string text_of(const Window& w) {
  std::string text = fmt::format("{}x{}", w.kernel_h, w.kernel_w);
  if (w.stride_h != 1 || w.stride_w != 1) text += "/" + both(w.stride_h, w.stride_w);
  if (w.pad != Padding{}) text += " pad " + text_of(w.pad);
  if (w.dilation_h != 1 || w.dilation_w != 1) text += " dilation " + both(w.dilation_h, w.dilation_w);
  return text;
}

}  // namespace

std::string text_of(const NodeAttributes& node) {
  std::string text = node.op.windowed ? text_of(node.window) : "";
  const auto add = [&](const std::string& more) { text += (text.empty() ? "" : " ") + more; };
  if (node.op.grouped && node.groups != 1)
    add(node.op.weighted && node.groups == node.channels ? "depthwise" : fmt::format("{} groups", node.groups));
  if (node.transposed) add("transposed");
  if (node.op.has_factor) add(fmt::format("times {}x{}", node.factor_h, node.factor_w));
  if (node.op.op == Op::slice)
    add(fmt::format("channels {}..{}", node.first_channel, node.first_channel + node.channels - 1));
  return text;
}

void add_attributes(const NodeAttributes& node, nlohmann::json& to) {
  if (node.op.windowed) {
    const Window& w = node.window;
    to["window"] = {{"kernel", {w.kernel_h, w.kernel_w}},
                    {"stride", {w.stride_h, w.stride_w}},
                    {"pad", {w.pad.top, w.pad.left, w.pad.bottom, w.pad.right}},
                    {"dilation", {w.dilation_h, w.dilation_w}}};
  }
  if (node.op.grouped) to["groups"] = node.groups;
  if (node.op.op == Op::matmul) to["transposed"] = node.transposed;
  if (node.op.has_factor) to["factor"] = {node.factor_h, node.factor_w};
  if (node.op.op == Op::slice) to["first_channel"] = node.first_channel;
}

}  // namespace octet::cli

// SPDX-License-Identifier: Apache-2.0
// Values that depend on shapes and constants alone and are computed while the file is read: rows of integers, no longer
// than a shape can be, and the layout of weights.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "src/base/numbers.h"
#include "src/net/onnx/rules.h"

namespace octet::onnx_rules {
namespace {

constexpr size_t kLongestRow = 64;

void give(NodeReader& node, std::vector<int64_t> values, std::vector<int64_t> shape) {
  if (values.size() > kLongestRow) node.refuse(fmt::format("gives more than {} integers", kLongestRow));
  Constant constant;
  constant.shape = std::move(shape);
  constant.integers = std::move(values);
  node.result(node.network().constant(std::move(constant)));
}

void give_integers(NodeReader& node, std::vector<int64_t> values, bool scalar) {
  const auto size = static_cast<int64_t>(values.size());
  give(node, std::move(values), scalar ? std::vector<int64_t>{} : std::vector<int64_t>{size});
}

/// Whether the input is a matrix of integers: exporters convert the pads of a Pad, [n, 2], from PyTorch's order of
/// axes.
bool is_integer_matrix(NodeReader& node) {
  const Constant& found = node.constant(0);
  return !found.real && found.shape.size() == 2 && found.shape[1] > 0;
}

void reverse_rows(NodeReader& node) {
  const Constant from = node.constant(0);
  const auto row = from.shape.size() == 2 ? static_cast<size_t>(from.shape[1]) : size_t{1};
  std::vector<int64_t> values;
  for (size_t first = from.integers.size(); first >= row; first -= row)
    values.insert(values.end(), from.integers.begin() + static_cast<std::ptrdiff_t>(first - row),
                  from.integers.begin() + static_cast<std::ptrdiff_t>(first));
  give(node, std::move(values), from.shape);
}

/// Whether a Slice takes all rows, from the last to the first: [::-1].
bool reverses(NodeReader& node) {
  const Constant& from = node.constant(0);
  if (from.real || from.shape.empty() || !node.has_input(3) || !node.has_input(4)) return false;
  const std::vector<int64_t> starts = node.integers_input(1), ends = node.integers_input(2);
  return starts == std::vector<int64_t>{-1} && ends.size() == 1 && ends[0] < -from.shape[0] &&
         node.integers_input(3) == std::vector<int64_t>{0} && node.integers_input(4) == std::vector<int64_t>{-1} &&
         (from.shape.size() == 1 || is_integer_matrix(node));
}

int64_t compute(NodeReader& node, int64_t a, int64_t b) {
  if (a == kBatchSize || b == kBatchSize)
    node.refuse("computes with the number of images; expected a network for any batch");
  int64_t result = 0;
  bool overflow = false;
  if (node.op() == "Add") overflow = __builtin_add_overflow(a, b, &result);
  if (node.op() == "Sub") overflow = __builtin_sub_overflow(a, b, &result);
  if (node.op() == "Mul") overflow = __builtin_mul_overflow(a, b, &result);
  if (node.op() == "Div") {
    if (b == 0 || b == -1) node.refuse(fmt::format("divides by {}", b));
    result = a / b;
  }
  if (overflow) node.refuse(fmt::format("{} and {}: too large", a, b));
  return result;
}

/// Converts integers to float32. Fails for the number of images.
std::vector<float> reals_of(NodeReader& node, const Constant& from) {
  for (const int64_t value : from.integers)
    if (value == kBatchSize) node.refuse("of the number of images; expected a network for any batch");
  return {from.integers.begin(), from.integers.end()};
}

/// Transposes [columns, rows] to `shape`, [rows, columns]. An empty list stays empty.
template <typename Number>
std::vector<Number> transposed(const std::vector<Number>& from, const std::vector<int64_t>& shape) {
  std::vector<Number> to(from.size());
  for (size_t i = 0; i < to.size(); ++i) {
    const auto rows = static_cast<size_t>(shape[0]), columns = static_cast<size_t>(shape[1]);
    to[i] = from[i % columns * rows + i / columns];
  }
  return to;
}

}  // namespace

int64_t clamped(int64_t index, int64_t size) { return std::clamp<int64_t>(index < 0 ? index + size : index, 0, size); }

void constant(NodeReader& node) {
  Constant value;
  Network& network = node.network();
  if (const onnx::AttributeProto* tensor = node.attribute("value"); tensor != nullptr && tensor->has_t()) {
    value = network.read(tensor->t(), node.label());
  } else if (node.has("value_float") || node.has("value_floats")) {
    const onnx::AttributeProto* row = node.attribute("value_floats");
    value.real = true;
    if (row != nullptr) value.reals.assign(row->floats().begin(), row->floats().end());
    if (row != nullptr) value.shape = {row->floats_size()};
    if (row == nullptr) value.reals = {node.real("value_float", 0)};
  } else if (node.has("value_int")) {
    value.integers = {node.integer("value_int", 0)};
  } else if (node.has("value_ints")) {
    value.integers = node.integers("value_ints", {});
    value.shape = {static_cast<int64_t>(value.integers.size())};
  } else {
    node.refuse("expected a tensor, or numbers");
  }
  node.result(network.constant(std::move(value)));
}

void shape(NodeReader& node) {
  std::vector<int64_t> dims;
  if (node.input(0).constant) {
    dims = node.input(0).constant->shape;
  } else {
    const OnnxValue x = node.activation(0);
    dims = node.network().dims(x, kBatchSize);
  }
  const auto size = static_cast<int64_t>(dims.size());
  const int64_t start = clamped(node.integer("start", 0), size), end = clamped(node.integer("end", size), size);
  give_integers(node, {dims.begin() + start, dims.begin() + std::max(start, end)}, false);
}

void gather(NodeReader& node) {
  if (!node.input(0).constant) return gather_channels(node);
  const std::vector<int64_t> from = node.integers_input(0), indices = node.integers_input(1);
  if (const int64_t axis = node.integer("axis", 0); axis != 0 && axis != -1) node.refuse("expected axis 0 of a shape");
  std::vector<int64_t> taken;
  for (const int64_t index : indices)
    taken.push_back(from[static_cast<size_t>(positive_axis(node, index, static_cast<int64_t>(from.size())))]);
  give_integers(node, taken, node.constant(1).shape.empty());
}

void slice(NodeReader& node) {
  if (!node.input(0).constant) return slice_activation(node);
  if (reverses(node)) return reverse_rows(node);
  const std::vector<int64_t> from = node.integers_input(0);
  const std::vector<int64_t> starts = node.row(1, "starts"), ends = node.row(2, "ends"), axes = node.row(3, "axes");
  if (starts.size() != 1 || ends.size() != 1 || (!axes.empty() && axes != std::vector<int64_t>{0}) ||
      (node.has_input(4) && node.integers_input(4) != std::vector<int64_t>{1}))
    node.refuse("expected one range of a shape, in steps of 1");
  const auto size = static_cast<int64_t>(from.size());
  const int64_t start = clamped(starts[0], size), end = clamped(ends[0], size);
  give_integers(node, {from.begin() + start, from.begin() + std::max(start, end)}, false);
}

void cast(NodeReader& node) {
  const int64_t to = node.integer("to", 0);
  node.integer("saturate", 1);
  const bool to_real = is_real_type(static_cast<int>(to));
  const bool to_integer = to == onnx::TensorProto::INT64 || to == onnx::TensorProto::INT32;
  const OnnxValue& x = node.input(0);
  if (!to_real && !(to_integer && x.constant))
    node.refuse("to another type; expected float32, float16, bfloat16 or float64, or int64 and int32 of a constant");
  // A size that float32 rounds may be another number of pixels than the one that the file computes in float64.
  const bool of_double = x.constant && x.constant->type == onnx::TensorProto::DOUBLE;
  if (x.constant && ((to == onnx::TensorProto::DOUBLE && !x.constant->real) || (to_integer && of_double)))
    node.refuse("between integers and float64; octet computes shapes with float32: expected a Cast to or from FLOAT");
  if (!x.constant || x.constant->real == to_real) return identity(node);
  const Constant from = node.constant(0);
  Constant cast;
  cast.shape = from.shape;
  cast.real = to_real;
  if (to_real) cast.reals = reals_of(node, from);
  for (const float value : from.reals) {
    if (!(std::abs(value) < 1e9f)) node.refuse(fmt::format("of {} to an integer", value));
    cast.integers.push_back(static_cast<int64_t>(value));
  }
  node.result(node.network().constant(std::move(cast)));
}

/// Computes with float32 numbers that exporters leave as expressions: a scale of a Resize, a mean times 255.
void arithmetic_of_reals(NodeReader& node) {
  const Constant a = node.constant(0), b = node.constant(1);
  const size_t count = std::max(a.elements(), b.elements());
  if (!a.real || !b.real || (a.elements() != 1 && b.elements() != 1 && a.shape != b.shape) || a.elements() == 0 ||
      b.elements() == 0)
    node.refuse("expected float32 numbers of one shape, or one number and others");
  Constant result;
  result.real = true;
  result.shape = a.elements() == count && a.shape.size() >= b.shape.size() ? a.shape : b.shape;
  for (size_t i = 0; i < count; ++i) {
    const float x = a.reals[a.elements() == 1 ? 0 : i], y = b.reals[b.elements() == 1 ? 0 : i];
    if (node.op() == "Add") result.reals.push_back(x + y);
    if (node.op() == "Sub") result.reals.push_back(x - y);
    if (node.op() == "Mul") result.reals.push_back(x * y);
    if (node.op() == "Div") result.reals.push_back(x / y);
  }
  node.result(node.network().constant(std::move(result)));
}

void arithmetic(NodeReader& node) {
  if (node.constant(0).real || node.constant(1).real) return arithmetic_of_reals(node);
  const std::vector<int64_t> a = node.integers_input(0), b = node.integers_input(1);
  if (a.size() != b.size() && a.size() != 1 && b.size() != 1) node.invalid("its inputs differ in length");
  std::vector<int64_t> result;
  for (size_t i = 0; i < std::max(a.size(), b.size()) && !a.empty() && !b.empty(); ++i)
    result.push_back(compute(node, a[a.size() == 1 ? 0 : i], b[b.size() == 1 ? 0 : i]));
  give_integers(node, result, node.constant(0).shape.empty() && node.constant(1).shape.empty());
}

void concat_reals(NodeReader& node) {
  Constant row;
  row.real = true;
  for (int i = 0; i < node.inputs(); ++i) {
    const Constant& part = node.constant(i);
    if (!part.real || part.shape.size() != 1) node.refuse("expected rows of float32 numbers");
    row.reals.insert(row.reals.end(), part.reals.begin(), part.reals.end());
  }
  node.integer("axis", 0);
  row.shape = {static_cast<int64_t>(row.reals.size())};
  node.result(node.network().constant(std::move(row)));
}

void concat_integers(NodeReader& node) {
  if (node.constant(0).real) return concat_reals(node);
  std::vector<int64_t> row;
  for (int i = 0; i < node.inputs(); ++i) {
    const std::vector<int64_t> part = node.integers_input(i);
    row.insert(row.end(), part.begin(), part.end());
    if (row.size() > kLongestRow) node.refuse(fmt::format("gives more than {} integers", kLongestRow));
  }
  if (node.integer("axis", 0) != 0 && node.integer("axis", 0) != -1) node.refuse("expected axis 0 of shapes");
  give_integers(node, row, false);
}

void constant_of_shape(NodeReader& node) {
  const std::vector<int64_t> size = node.integers_input(0);
  if (size.size() != 1 || size[0] < 0 || size[0] > static_cast<int64_t>(kLongestRow))
    node.refuse(fmt::format("gives {}; expected a row of at most {} numbers", dims_text(size), kLongestRow));
  Constant value;
  value.real = true;
  value.reals = {0};  // the default
  if (const onnx::AttributeProto* tensor = node.attribute("value"); tensor != nullptr && tensor->has_t())
    value = node.network().read(tensor->t(), node.label());
  if (value.elements() != 1) node.invalid("expected one number as its value");
  const auto count = static_cast<size_t>(size[0]);
  if (!value.real) return give_integers(node, std::vector<int64_t>(count, value.integers[0]), false);
  value.reals.resize(count, value.reals[0]);
  value.shape = size;
  node.result(node.network().constant(std::move(value)));
}

/// Gives weights another shape of as many numbers.
void reshape_reals(NodeReader& node) {
  Constant to = node.constant(0);
  if (!to.scale.empty()) node.refuse("of codes with scales; expected weights in their shape");
  const auto numbers = static_cast<int64_t>(to.elements());
  std::vector<int64_t> shape;
  if (node.op() == "Reshape") {
    const bool zero_is_zero = node.integer("allowzero", 0) != 0;
    shape = node.integers_input(1);
    for (size_t i = 0; i < shape.size(); ++i)
      if (shape[i] == 0 && !zero_is_zero && i < to.shape.size()) shape[i] = to.shape[i];
    if (const auto open = std::find(shape.begin(), shape.end(), -1); open != shape.end()) {
      *open = 1;
      const int64_t rest = saturating_product(shape);
      *open = rest > 0 ? numbers / rest : 0;
    }
  } else {
    shape = to.shape;
    const bool more = node.op() == "Unsqueeze";
    const size_t count = node.row(1, "axes").size();
    std::vector<int64_t> axes = read_axes(node, static_cast<int64_t>(shape.size() + (more ? count : 0)));
    std::sort(axes.begin(), axes.end());
    if (!more && axes.empty()) std::erase(shape, 1);
    if (!more) std::reverse(axes.begin(), axes.end());
    for (const int64_t axis : axes) {
      if (more && axis <= std::ssize(shape)) shape.insert(shape.begin() + axis, 1);
      if (!more && axis < std::ssize(shape)) shape.erase(shape.begin() + axis);
    }
  }
  if (std::any_of(shape.begin(), shape.end(), [](int64_t dim) { return dim < 0; }) ||
      saturating_product(shape) != numbers)
    node.invalid(fmt::format("{} to {}", dims_text(to.shape), dims_text(shape)));
  to.shape = std::move(shape);
  node.result(node.network().constant(std::move(to)));
}

/// Reshapes integers: a number to a row of one and back, a row to a matrix and back.
void reshape_constant(NodeReader& node) {
  if (node.constant(0).real) return reshape_reals(node);
  const bool matrix = node.op() == "Reshape" && is_integer_matrix(node);
  const std::vector<int64_t> values = matrix ? node.constant(0).integers : node.integers_input(0);
  bool scalar = node.op() == "Squeeze";
  if (node.op() == "Reshape") {
    const std::vector<int64_t> to = node.integers_input(1);
    const auto size = static_cast<int64_t>(values.size());
    if (to.size() == 2 && to[0] == -1 && to[1] > 0 && size % to[1] == 0) {
      node.integer("allowzero", 0);
      return give(node, values, {size / to[1], to[1]});
    }
    scalar = to.empty();
    if (to.size() > 1 || (to.size() == 1 && to[0] != -1 && to[0] != static_cast<int64_t>(values.size())))
      node.refuse(fmt::format("{} integers to {}; expected a row", values.size(), dims_text(to)));
    node.integer("allowzero", 0);
  } else if (const std::vector<int64_t> axes = read_axes(node, 1); !axes.empty() && axes != std::vector<int64_t>{0}) {
    node.refuse("expected axis 0");
  }
  if ((scalar || node.op() == "Unsqueeze") && values.size() != 1) node.refuse("expected one number");
  if (node.op() == "Unsqueeze" && !node.constant(0).shape.empty()) node.refuse("expected a number; found a row");
  give_integers(node, values, scalar);
}

/// A Transpose between [N, C, H, W] and [N, H, W, C] changes how the file orders a value, and no code of octet's.
void transpose_image(NodeReader& node) {
  OnnxValue y = node.input(0);
  const std::vector<int64_t> perm = node.integers("perm", {});
  const bool to_last = perm == std::vector<int64_t>{0, 2, 3, 1}, to_first = perm == std::vector<int64_t>{0, 3, 1, 2};
  if (y.rank != 4 || y.heads != 0 || y.groups != 0 || !(y.channels_last ? to_first : to_last))
    node.refuse(fmt::format("of an activation to {}; expected [N, C, H, W] to [N, H, W, C] or back", dims_text(perm)));
  y.channels_last = !y.channels_last;
  y.direct = false;
  node.result(std::move(y));
}

void transpose(NodeReader& node) {
  const OnnxValue& x = node.input(0);
  if (x.groups != 0 && !x.swapped && node.integers("perm", {}) == std::vector<int64_t>{0, 2, 1, 3, 4}) {
    OnnxValue y = x;
    y.swapped = true;
    return node.result(y);
  }
  if (swap_pixels_and_channels(node)) return;
  if (!x.constant) return transpose_image(node);
  const Constant from = is_integer_matrix(node) ? node.constant(0) : node.weights(0, 2);
  if (node.integers("perm", {1, 0}) != std::vector<int64_t>{1, 0}) node.refuse("expected perm [1, 0] of a matrix");
  Constant to;
  to.real = from.real;
  to.type = from.type;
  to.shape = {from.shape[1], from.shape[0]};
  to.scale = from.scale;
  to.axis = 1 - from.axis;
  to.reals = transposed(from.reals, to.shape);
  to.integers = transposed(from.integers, to.shape);
  node.result(node.network().constant(std::move(to)));
}

}  // namespace octet::onnx_rules

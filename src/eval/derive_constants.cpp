// SPDX-License-Identifier: Apache-2.0
#include "src/eval/derive_constants.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "src/base/error.h"
#include "src/base/threads.h"
#include "src/eval/derived_values.h"

namespace octet {
namespace {

/// Derives the constants of nodes, and counts and lists what is wrong.
class Derivation {
 public:
  Derivation(const TrainedNetwork& trained, const Int8Graph& graph) : trained_(trained), graph_(graph) {
    for (const Node& node : trained.written.nodes) written_.emplace(node.name, &node);
    require_same_nodes();
  }

  /// Derives the nodes on all cores: a large network has a hundred million weights.
  DerivedConstants run() const {
    std::vector<Derivation> of_nodes(graph_.nodes.size(), *this);
    std::vector<std::exception_ptr> failures(of_nodes.size());
    ThreadPool pool(0);
    pool.run(static_cast<int>(of_nodes.size()), [&](int n, int) {
      try {
        of_nodes[n].node_ = static_cast<size_t>(n);
        of_nodes[n].derive_node();
      } catch (...) {
        failures[n] = std::current_exception();
      }
    });
    DerivedConstants all;
    all.derived = true;
    for (size_t n = 0; n < of_nodes.size(); ++n) {
      if (failures[n]) std::rethrow_exception(failures[n]);
      const DerivedConstants& node = of_nodes[n].found_;
      all.multipliers += node.multipliers;
      all.table_entries += node.table_entries;
      all.weights += node.weights;
      all.edges += node.edges;
      all.wrong += node.wrong;
      all.first.insert(all.first.end(), node.first.begin(), node.first.end());
    }
    return all;
  }

 private:
  const Node& node() const { return trained_.prepared.graph.nodes[node_]; }
  const Int8Node& stored() const { return graph_.nodes[node_]; }
  const QParams& edge(size_t input) const { return trained_.edges[static_cast<size_t>(node().inputs[input])]; }
  const QParams& out() const { return trained_.edges[node_]; }
  bool gives_floats() const { return trained_.prepared.floats[node_]; }
  double y_scale() const { return gives_floats() ? 1 : out().scale; }

  void require_same_nodes() const {
    const std::vector<Node>& nodes = trained_.prepared.graph.nodes;
    for (size_t n = 0; n < std::max(nodes.size(), graph_.nodes.size()); ++n) {
      const std::string given = n < graph_.nodes.size() ? graph_.nodes[n].name : "no node";
      const std::string wanted = n < nodes.size() ? nodes[n].name : "no node";
      // An output of an ONNX file's network has the file's name for it.
      if (given != wanted && !std::count(graph_.outputs.begin(), graph_.outputs.end(), static_cast<int>(n)))
        throw promise_error(
            fmt::format("the int8 network is not of this run: its node {} is '{}', that of the trained "
                        "network '{}'",
                        n, given, wanted));
    }
  }

  /// Returns the node of this name before fuse().
  const Node& written(const std::string& name) const {
    const auto found = written_.find(name);
    if (found == written_.end()) throw promise_error("'" + name + "' is no node of the network as it was written");
    return *found->second;
  }

  void count(long& kind, bool right, std::string_view what, long index, double is, double expected) {
    ++kind;
    if (right) return;
    ++found_.wrong;
    const std::string& name = node().name;
    const bool known = std::any_of(found_.first.rbegin(), found_.first.rend(),
                                   [&](const WrongConstant& w) { return w.node == name && w.what == what; });
    if (!known) found_.first.push_back({name, std::string(what), index, is, expected});
  }

  void expect_real(std::string_view what, long index, double is, const DerivedReal& real) {
    count(found_.multipliers, std::fabs(is - real.value) <= real.within, what, index, is, real.value);
  }
  void expect_codes(std::string_view what, long index, int is, const DerivedCodes& codes) {
    const int nearest = std::clamp(is, codes.lowest, codes.highest);
    count(found_.table_entries, is == nearest, what, index, is, nearest);
  }
  void expect_equal(long& kind, std::string_view what, long index, double is, double expected) {
    count(kind, is == expected, what, index, is, expected);
  }
  /// Returns whether a list is as long as it must be. If not, it is counted as wrong and its values are not compared.
  bool expect_size(std::string_view what, size_t is, size_t expected) {
    if (is == expected) return true;
    count(found_.multipliers, false, fmt::format("number of {}", what), -1, static_cast<double>(is),
          static_cast<double>(expected));
    return false;
  }

  void derive_node() {
    if (!gives_floats()) derive_edge();
    switch (node().op) {
      case Op::input:
        return derive_pixels();
      case Op::conv2d:
      case Op::linear:
        return derive_layer();
      case Op::lookup:
        return derive_table();
      case Op::prelu: {
        std::vector<double> multipliers = {edge(0).scale / y_scale()};
        for (const float slope : parameter(node().name + ".weight"))
          multipliers.push_back(edge(0).scale / y_scale() * slope);
        return expect_multipliers(multipliers);
      }
      case Op::softmax:
        derive_exponentials();
        return expect_multipliers({1 / y_scale()});
      case Op::mul:
        return expect_multipliers({static_cast<double>(edge(0).scale) * edge(1).scale / y_scale()});
      case Op::matmul:
        return expect_multipliers(
            {static_cast<double>(edge(0).scale) * edge(1).scale * written(node().name).scale / y_scale()});
      case Op::avg_pool: {
        const Window& window = written(node().name).window;
        return expect_multipliers({edge(0).scale / (y_scale() * window.kernel_h * window.kernel_w)});
      }
      case Op::global_avg_pool: {
        const Shape& image = trained_.prepared.graph.nodes[static_cast<size_t>(node().inputs[0])].shape;
        return expect_multipliers({edge(0).scale / (y_scale() * image.h * image.w)});
      }
      case Op::resize_bilinear:  // the integer weights along an axis add up to twice the factor
        return expect_multipliers({edge(0).scale / (y_scale() * 2 * node().factor_h * 2 * node().factor_w)});
      case Op::add:
      case Op::concat:
      case Op::relu:
      case Op::relu6:
      case Op::requantize: {
        std::vector<double> multipliers;
        for (size_t i = 0; i < node().inputs.size(); ++i) multipliers.push_back(edge(i).scale / y_scale());
        return expect_multipliers(multipliers);
      }
      case Op::max_pool:  // codes are copied
      case Op::flatten:
      case Op::subsample_pad:
      case Op::slice:
      case Op::resize:
      case Op::channel_shuffle:
      case Op::depth_to_space:
        return expect_multipliers({});
      case Op::batch_norm:
      case Op::dropout:
        throw promise_error("'" + node().name + "' has no int8 form");
    }
  }

  void expect_multipliers(const std::vector<double>& values) {
    if (!expect_size("multipliers", stored().multiplier.size(), values.size())) return;
    for (size_t i = 0; i < values.size(); ++i)
      expect_real("multiplier", static_cast<long>(i), stored().multiplier[i], rounded_to_float(values[i], 1));
  }

  CodeRange code_range() const {
    const Node& n = node();
    const bool six = n.op == Op::relu6 || n.activation == Activation::relu6;
    const bool cut = six || n.op == Op::relu || n.activation == Activation::relu;
    const QParams& q = out();
    const CodeRange all{q.quant_min, q.quant_max};
    return {cut ? std::max(q.quant_min, q.zero_point) : q.quant_min,
            six ? nearest_code(6, q.scale, q.zero_point, all) : q.quant_max};
  }

  void derive_edge() {
    const QParams& q = out();
    const Int8Node& s = stored();
    const CodeRange range = code_range();
    expect_equal(found_.edges, "scale", -1, s.out.scale, q.scale);
    expect_equal(found_.edges, "zero point", -1, s.out.zero_point, q.zero_point);
    expect_equal(found_.edges, "lowest code", -1, s.out.quant_min, q.quant_min);
    expect_equal(found_.edges, "highest code", -1, s.out.quant_max, q.quant_max);
    expect_equal(found_.edges, "lower bound", -1, s.clamp_min, range.lo);
    expect_equal(found_.edges, "upper bound", -1, s.clamp_max, range.hi);
  }

  /// Returns the code that a byte of an engine's table stores.
  int code_of(uint8_t byte) const { return out().quant_min < 0 ? static_cast<int8_t>(byte) : byte; }

  void derive_pixels() {
    const Preprocessing& p = trained_.preprocessing;
    const auto channels = static_cast<size_t>(node().shape.c);
    if (!expect_size("means", graph_.preprocessing.mean.size(), channels) ||
        !expect_size("deviations", graph_.preprocessing.std.size(), channels))
      return;
    for (size_t c = 0; c < channels; ++c) {
      const std::vector<uint8_t> table = input_table(graph_, static_cast<int>(c));
      for (int pixel = 0; pixel < 256; ++pixel)
        expect_codes("table entry", static_cast<long>(256 * c) + pixel, code_of(table[static_cast<size_t>(pixel)]),
                     pixel_codes(pixel, p.mean.at(c), p.std.at(c), out()));
    }
  }

  void derive_table() {
    const Node& lookup = written(node().name);
    std::vector<FunctionFactors> factors(1);
    std::vector<double> scales;
    if (lookup.groups > 1) {
      const std::vector<float>&in = parameter(lookup.name + ".input_scale"),
            &by = parameter(lookup.name + ".output_scale");
      scales.assign(in.begin(), in.end());
      scales.insert(scales.end(), by.begin(), by.end());
      factors.clear();
      for (size_t c = 0; c < in.size(); ++c) factors.push_back({in[c], by.at(c)});
    }
    expect_multipliers(scales);
    if (!expect_size("table entries", stored().table.size(), 256 * factors.size())) return;
    for (size_t entry = 0; entry < stored().table.size(); ++entry)
      expect_codes("table entry", static_cast<long>(entry), code_of(stored().table[entry]),
                   table_codes(lookup.function, factors[entry / 256], static_cast<int>(entry % 256), edge(0), out(),
                               code_range()));
  }

  void derive_exponentials() {
    if (!expect_size("exponentials", stored().exponentials.size(), 256)) return;
    for (int d = 0; d < 256; ++d)
      expect_codes("exponential", d, stored().exponentials[static_cast<size_t>(d)],
                   exponential_codes(d, edge(0).scale));
  }

  /// Returns a parameter of the float network.
  const std::vector<float>& parameter(const std::string& name) const {
    const auto found = trained_.params.find(name);
    if (found == trained_.params.end()) throw promise_error("'" + name + "' is not among the trained weights");
    return found->second;
  }

  void derive_layer() {
    const Node& layer = written(node().name);
    const std::vector<float>& scales = trained_.weight_scales.at(node().name);
    const size_t outputs = scales.size();
    if (!expect_size("multipliers", stored().multiplier.size(), outputs) ||
        !expect_size("biases", stored().bias.size(), outputs) ||
        !expect_size("weight scales", stored().weight_scale.size(), outputs))
      return;
    for (size_t k = 0; k < outputs; ++k) {
      LayerChannel channel{.x_scale = edge(0).scale, .weight_scale = scales[k], .y_scale = y_scale(), .batch_norm = {}};
      if (layer.bias) channel.bias = parameter(layer.name + ".bias").at(k);
      if (const std::string& name = node().batch_norm; !name.empty()) {
        channel.batch_norm = {parameter(name + ".weight").at(k), parameter(name + ".bias").at(k),
                              parameter(name + ".running_mean").at(k), parameter(name + ".running_var").at(k),
                              written(name).epsilon};
      }
      const LayerChannelConstants constants = layer_constants(channel);
      const auto index = static_cast<long>(k);
      expect_real("multiplier", index, stored().multiplier[k], constants.multiplier);
      expect_real("bias", index, stored().bias[k], constants.bias);
      // A Q/DQ file has scales only, no multipliers: BatchNorm's factor is part of its weight scale. That scale then
      // follows from the multiplier, checked above, up to a few roundings to float32.
      const float scale = stored().weight_scale[k];
      const bool has_factor = std::abs(scale * edge(0).scale / (stored().multiplier[k] * y_scale()) - 1) <= 4e-7;
      expect_equal(found_.weights, "weight scale", index, scale, has_factor ? scale : scales[k]);
    }
    if (node().inputs.size() > 1)
      expect_real("residual multiplier", -1, stored().residual_multiplier,
                  rounded_to_float(edge(1).scale / y_scale(), 1));
    derive_weights(scales);
  }

  /// Returns the pixels of the convolution's window, or of the image that was flattened for the linear.
  size_t weight_pixels() const {
    if (node().op == Op::conv2d) return static_cast<size_t>(node().window.kernel_h) * node().window.kernel_w;
    const std::vector<Node>& nodes = trained_.prepared.graph.nodes;
    const Node* image = &nodes[static_cast<size_t>(node().inputs[0])];
    while (image->op == Op::flatten) image = &nodes[static_cast<size_t>(image->inputs[0])];
    return static_cast<size_t>(image->shape.h) * image->shape.w;
  }

  /// PyTorch's rows are [channels, pixels], those of the int8 network [pixels, channels].
  void derive_weights(const std::vector<float>& scales) {
    const std::vector<float>& weights = parameter(node().name + ".weight");
    if (!expect_size("weights", stored().weight.size(), weights.size())) return;
    const int highest = (1 << (trained_.prepared.bits.weight_bits[node_] - 1)) - 1;
    const bool one_more = trained_.prepared.spec.weight_range == WeightRange::full && highest < 127;
    const CodeRange range{one_more ? -highest - 1 : -highest, highest};
    const size_t row = weights.size() / scales.size(), pixels = weight_pixels(), channels = row / pixels;
    for (size_t k = 0; k < scales.size(); ++k)
      for (size_t channel = 0; channel < channels; ++channel)
        for (size_t pixel = 0; pixel < pixels; ++pixel) {
          const size_t index = k * row + pixel * channels + channel;
          const int code = nearest_code(weights[k * row + channel * pixels + pixel], scales[k], 0, range);
          expect_equal(found_.weights, "weight", static_cast<long>(index), stored().weight[index], code);
        }
  }

  const TrainedNetwork& trained_;
  const Int8Graph& graph_;
  std::map<std::string, const Node*> written_;
  size_t node_ = 0;  ///< the node that is being derived
  DerivedConstants found_;
};

}  // namespace

DerivedConstants derive_constants(const TrainedNetwork& trained, const Int8Graph& graph) {
  return Derivation(trained, graph).run();
}

}  // namespace octet

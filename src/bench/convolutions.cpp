// SPDX-License-Identifier: Apache-2.0
#include "src/bench/bench.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "src/base/text.h"

namespace octet {
namespace {

std::string describe_conv(const Int8Graph& graph, int node) {
  const Int8Node& n = graph.nodes[node];
  const Shape& in = graph.nodes[n.inputs[0]].shape;
  const Window& w = n.window;
  std::string text = fmt::format("{}, {}x{} -> {}, {}x{}", in.c, in.h, in.w, n.shape.c, w.kernel_h, w.kernel_w);
  if (w.stride_h != 1 || w.stride_w != 1) text += fmt::format("/{}", w.stride_h);
  if (w.stride_h != w.stride_w) text += fmt::format("x{}", w.stride_w);
  if (w.dilation_h != 1 || w.dilation_w != 1) text += fmt::format(", dilation {}x{}", w.dilation_h, w.dilation_w);
  if (n.groups == in.c && n.groups > 1) {
    text += ", depthwise";
  } else if (n.groups > 1) {
    text += fmt::format(", {} groups", n.groups);
  }
  if (n.inputs.size() > 1) text += " + residual";
  return text;
}

std::string tera_operations(const ConvRow& row, Contestant who) {
  const double ms = row.times[who].milliseconds;
  return ms > 0 ? decimal(2e-9 * static_cast<double>(row.multiply_adds) / ms) : "-";
}

std::string gigabytes_per_second(const ConvRow& row, Contestant who) {
  const double ms = row.times[who].milliseconds;
  return ms > 0 ? decimal(1e-6 * static_cast<double>(row.bytes[who]) / ms) : "-";
}

std::string ratio(double a, double b) { return a > 0 && b > 0 ? fmt::format("{:.2f}", a / b) : "-"; }

}  // namespace

std::vector<DistinctConv> distinct_convolutions(const Int8Graph& graph) {
  std::vector<DistinctConv> convs;
  std::map<std::string, size_t> known;  // the key also has the clamp and the padding, which are not shown
  for (int node = 0; node < static_cast<int>(graph.nodes.size()); ++node) {
    const Int8Node& n = graph.nodes[node];
    if (n.op != Int8Op::conv2d) continue;
    const std::string description = describe_conv(graph, node);
    const bool clamps = n.clamp_min > n.out.quant_min || n.clamp_max < n.out.quant_max;
    const Padding& pad = n.window.pad;
    const std::string key =
        fmt::format("{} {} {} {} {} {}", description, pad.top, pad.left, pad.bottom, pad.right, clamps);
    const auto [place, is_new] = known.emplace(key, convs.size());
    if (is_new) convs.push_back({node, 0, description + (clamps ? "" : ", no ReLU")});
    ++convs[place->second].count;
  }
  return convs;
}

bool all_ran(const ConvBench& bench, const ConvRow& row) {
  return std::all_of(bench.contestants.begin(), bench.contestants.end(),
                     [&](Contestant who) { return row.times[who].milliseconds > 0; });
}

void add_row(ConvBench& bench, ConvRow row) {
  if (all_ran(bench, row)) {
    ++bench.compared;
    for (const Contestant who : bench.contestants) {
      bench.weighted[who] += row.conv.count * row.times[who].milliseconds;
    }
    bench.weighted_floor += row.conv.count * row.floor_ms;
  }
  bench.convs.push_back(std::move(row));
}

std::string describe(const ConvBench& bench) {
  std::vector<Column> columns = {{"convolution", Align::left}, {"times"}};
  for (const Contestant who : bench.contestants) {
    columns.insert(columns.end(), {{std::string(kContestantNames[who]) + ", ms"}, {"TOPS"}, {"GB/s"}});
  }
  columns.insert(
      columns.end(),
      {{"floor, ms"}, {"cuda / floor"}, {"cuda / cudnn"}, {"cuda's kernel", Align::left}, {"cudnn's", Align::left}});
  const bool cutlass = std::count(bench.contestants.begin(), bench.contestants.end(), kCutlassInt8) > 0;
  if (cutlass) columns.push_back({"cutlass's", Align::left});
  TextTable table(columns);
  std::string reasons;
  for (const ConvRow& row : bench.convs) {
    std::vector<std::string> cells = {row.conv.description, std::to_string(row.conv.count)};
    for (const Contestant who : bench.contestants) {
      const ConvolutionTime& time = row.times[who];
      cells.push_back(time.milliseconds > 0 ? fmt::format("{:.4f}", time.milliseconds) : "-");
      cells.push_back(tera_operations(row, who));
      cells.push_back(gigabytes_per_second(row, who));
      if (!time.reason.empty()) {
        reasons += fmt::format("{} does not run {}: {}\n", kContestantNames[who], row.conv.description, time.reason);
      }
    }
    cells.push_back(row.floor_ms > 0 ? fmt::format("{:.4f}", row.floor_ms) : "-");
    cells.push_back(ratio(row.times[kCudaInt8].milliseconds, row.floor_ms));
    cells.push_back(ratio(row.times[kCudaInt8].milliseconds, row.times[kCudnnInt8].milliseconds));
    cells.push_back(row.times[kCudaInt8].kernel);
    cells.push_back(row.times[kCudnnInt8].kernel);
    if (cutlass) cells.push_back(row.times[kCutlassInt8].kernel);
    table.add_row(std::move(cells));
  }
  const auto& sum = bench.weighted;
  std::vector<std::string> sums;
  for (const Contestant who : bench.contestants)
    sums.push_back(fmt::format("{} {:.3f} ms", kContestantNames[who], sum[who]));
  return fmt::format(
      "{} on {}, batch {}: its distinct convolutions, random data\n\n{}\n{}\nweighted by how often each occurs, over "
      "the {} of {} that all run: {}; cuda takes {} of cudnn int8's time, {} of the floor's\n{}\n",
      bench.network, bench.machine, bench.batch, table.render(), reasons, bench.compared, bench.convs.size(),
      fmt::join(sums, ", "), ratio(sum[kCudaInt8], sum[kCudnnInt8]), ratio(sum[kCudaInt8], bench.weighted_floor),
      describe(bench.rates));
}

ConvBench bench_convolutions(const Int8Graph& graph, const TimingOptions& options) {
  const std::vector<DistinctConv> convs = distinct_convolutions(graph);
  std::vector<int> nodes;
  for (const DistinctConv& conv : convs) nodes.push_back(conv.node);
  const TimedConvolutions timed = time_convolutions(graph, nodes, options);
  ConvBench bench;
  bench.network = graph.name;
  bench.machine = timed.machine;
  bench.batch = options.batch;
  bench.contestants = timed.contestants;
  bench.rates = chip_rates();
  for (size_t i = 0; i < convs.size(); ++i) {
    ConvRow row;
    row.conv = convs[i];
    row.multiply_adds = options.batch * node_multiply_adds(graph.nodes[nodes[i]]);
    row.bytes[kCudaInt8] = row.bytes[kCudnnInt8] = row.bytes[kCutlassInt8] = node_bytes(graph, nodes[i], options.batch);
    row.bytes[kCudnnFp16] = 2 * row.bytes[kCudaInt8];
    row.times = timed.times[i];
    if (bench.rates) row.floor_ms = floor_milliseconds(graph, nodes[i], options.batch, *bench.rates);
    add_row(bench, std::move(row));
  }
  return bench;
}

}  // namespace octet

// SPDX-License-Identifier: Apache-2.0
// The path for depthwise convolutions (groups == in_c == out_c), by the kernels of one instruction set.
//
// A task computes some output rows of the batch and a range of channel blocks. For each row the window's taps become
// pointers; taps in the padding point to a row of zero points. In short rows with several blocks every pixel has its
// own pointers and the row is one run. In long rows the pixels between the borders form one run, since their pointers
// differ by a constant step, and each pixel at a border is a run of its own.
#include <algorithm>
#include <string>
#include <vector>

#include "kernels/conv/cpu/micro_kernels.h"
#include "kernels/conv/cpu/paths.h"

namespace octet::kernels {
namespace {

constexpr double kMinTaskOutputs = 8192;  // with fewer outputs, distributing a task costs too much
constexpr int kTasks = 8;                 // tasks wanted per image
constexpr int kTableWidth = 16;           // rows up to this long have pointers for each pixel

/// How a batch is divided into tasks: row_tasks x column_tasks, with columns being channel blocks.
struct Grid {
  int rows = 0;
  int row_block = 0, row_tasks = 0;
  int column_block = 0, column_tasks = 0;
};

class DepthwiseConv2d final : public CpuConv2d {
 public:
  DepthwiseConv2d(const Conv2dShape& shape, const Conv2dParams& params, const Conv2dWeights& weights, CpuIsa isa)
      : g_(shape), isa_(isa), kernels_(depthwise_kernels(isa)), epilogue_(make_epilogue(params)) {
    taps_ = g_.kernel_h * g_.kernel_w;
    tap_groups_ = ceil_div(taps_, kernels_.tap_group);
    padded_taps_ = tap_groups_ * kernels_.tap_group;
    blocks_ = ceil_div(g_.out_c, kernels_.channels);
    table_ = g_.out_w <= kTableWidth && blocks_ > 1;
    // A run steps through the padding as through the image, so the padding holds a whole image row.
    padding_.assign(static_cast<size_t>(g_.in_w + 1) * g_.in_stride + kCpuReadSlack,
                    static_cast<uint8_t>(params.x.zero_point));
    const size_t slots = static_cast<size_t>(blocks_) * kernels_.slots;
    weight_ = AlignedArray<int8_t>(slots * padded_taps_);
    init_ = AlignedArray<int32_t>(slots);
    multiplier_ = AlignedArray<float>(slots);
    bias_ = AlignedArray<float>(slots);
    for (int block = 0; block < blocks_; ++block) pack_block(params.x, weights, block);
    while ((first_inner_ * g_.stride_w < g_.pad_w) && first_inner_ < g_.out_w) ++first_inner_;
    last_inner_ = first_inner_;
    const int span = g_.dilation_w * (g_.kernel_w - 1);
    while (last_inner_ < g_.out_w && last_inner_ * g_.stride_w - g_.pad_w + span < g_.in_w) ++last_inner_;
  }

  std::string name() const override {
    return conv_name(g_, {"_depthwise_", kernels_.isa, "_1x", std::to_string(kernels_.channels)});
  }
  size_t packed_bytes() const override {
    return weight_.bytes() + init_.bytes() + multiplier_.bytes() + bias_.bytes() + padding_.size();
  }
  size_t workspace_bytes() const override { return (table_ ? g_.out_w : 1) * padded_taps_ * sizeof(const uint8_t*); }
  int tasks(int images) const override {
    const Grid grid = make_grid(images);
    return grid.row_tasks * grid.column_tasks;
  }

  void run(const CpuConv2dBatch& batch, int begin, int end, void* workspace) const override {
    const Grid grid = make_grid(batch.images);
    auto** taps = static_cast<const uint8_t**>(workspace);
    for (int task = begin; task < end; ++task) {
      const int first_row = task % grid.row_tasks * grid.row_block;
      const int last_row = std::min(grid.rows, first_row + grid.row_block);
      const int first_block = task / grid.row_tasks * grid.column_block;
      const int last_block = std::min(blocks_, first_block + grid.column_block);
      for (int row = first_row; row < last_row; ++row) {
        run_row(batch, row, first_block, last_block, taps);
      }
    }
  }

 private:
  bool narrow(int block) const { return g_.out_c - block * kernels_.channels <= kernels_.narrow_channels; }

  void pack_block(const CodeInput& x, const Conv2dWeights& weights, int block) {
    const int tap_group = kernels_.tap_group;
    const uint8_t* order = narrow(block) ? kernels_.narrow_order : kernels_.order;
    for (int slot = 0; slot < kernels_.slots; ++slot) {
      const int channel = block * kernels_.channels + order[slot];
      const bool exists = channel < g_.out_c;
      const size_t at = static_cast<size_t>(block) * kernels_.slots + slot;
      int32_t sum = 0;
      for (int tap = 0; tap < padded_taps_; ++tap) {
        const int8_t w = exists && tap < taps_ ? weights.weight[channel * taps_ + tap] : int8_t{0};
        const size_t group = static_cast<size_t>(block) * tap_groups_ + tap / tap_group;
        weight_.data()[(group * kernels_.slots + slot) * tap_group + tap % tap_group] = w;
        sum += w;
      }
      init_.data()[at] = (kernels_.code_offset - x.zero_point) * sum;
      multiplier_.data()[at] = exists ? weights.multiplier[channel] : 0.0f;
      bias_.data()[at] = exists ? weights.bias[channel] : 0.0f;
    }
  }

  Grid make_grid(int images) const {
    Grid grid;
    grid.rows = images * g_.out_h;
    const double outputs = static_cast<double>(grid.rows) * g_.out_w * g_.out_c;
    const int wanted = std::clamp(static_cast<int>(outputs / kMinTaskOutputs), 1, kTasks * images);
    const int row_tasks = std::min(grid.rows, wanted);
    // Few rows do not divide evenly among threads, so each task then takes half of the channels.
    const int column_tasks = grid.rows < 2 * kTasks && wanted > 1 ? std::min(2, blocks_) : 1;
    grid.row_block = ceil_div(grid.rows, ceil_div(row_tasks, column_tasks));
    grid.row_tasks = ceil_div(grid.rows, grid.row_block);
    grid.column_block = ceil_div(blocks_, column_tasks);
    grid.column_tasks = ceil_div(blocks_, grid.column_block);
    return grid;
  }

  void run_row(const CpuConv2dBatch& batch, int row, int first_block, int last_block, const uint8_t** taps) const {
    const int image = row / g_.out_h, oy = row % g_.out_h;
    const uint8_t* x = batch.x + static_cast<ptrdiff_t>(image) * g_.in_h * g_.in_w * g_.in_stride;
    DepthwiseRun run;
    run.taps = taps;
    for (int ox = 0; ox < g_.out_w; ox += run.pixels) {
      if (table_) {
        point_row(x, oy, taps);
        run.pixels = g_.out_w;
        run.tap_step = padded_taps_;
      } else {
        point_taps(x, oy, ox, taps);
        run.pixels = ox >= first_inner_ && ox < last_inner_ ? last_inner_ - ox : 1;
        run.pixel_step = static_cast<ptrdiff_t>(g_.stride_w) * g_.in_stride;
      }
      const ptrdiff_t pixel = static_cast<ptrdiff_t>(row) * g_.out_w + ox;
      for (int block = first_block; block < last_block; ++block) run_block(batch, pixel, block, run);
    }
    if (batch.lookup == nullptr) return;
    const int channel = first_block * kernels_.channels, end = std::min(last_block * kernels_.channels, g_.out_c);
    uint8_t* y = static_cast<uint8_t*>(batch.y) + static_cast<ptrdiff_t>(row) * g_.out_w * g_.out_stride + channel;
    look_up_rows(isa_, *batch.lookup, y, g_.out_w, g_.out_stride, end - channel);
  }

  /// Sets the taps of all pixels of a row; between the borders a pixel's taps follow from its neighbour's.
  void point_row(const uint8_t* x, int oy, const uint8_t** taps) const {
    const int count = padded_taps_;
    const ptrdiff_t step = static_cast<ptrdiff_t>(g_.stride_w) * g_.in_stride;
    for (int ox = 0; ox < g_.out_w; ++ox, taps += count) {
      if (ox > first_inner_ && ox < last_inner_) {
        for (int tap = 0; tap < count; ++tap) taps[tap] = taps[tap - count] + step;
      } else {
        point_taps(x, oy, ox, taps);
      }
    }
  }

  /// Sets the taps of one output pixel, at channel 0; taps outside the image point to padding_.
  void point_taps(const uint8_t* x, int oy, int ox, const uint8_t** taps) const {
    const int iy = oy * g_.stride_h - g_.pad_h, ix = ox * g_.stride_w - g_.pad_w;
    int tap = 0;
    for (int r = 0; r < g_.kernel_h; ++r) {
      const int y = iy + r * g_.dilation_h;
      for (int s = 0; s < g_.kernel_w; ++s, ++tap) {
        const int column = ix + s * g_.dilation_w;
        const bool inside = y >= 0 && y < g_.in_h && column >= 0 && column < g_.in_w;
        taps[tap] = inside ? x + (static_cast<ptrdiff_t>(y) * g_.in_w + column) * g_.in_stride : padding_.data();
      }
    }
    for (; tap < padded_taps_; ++tap) taps[tap] = padding_.data();
  }

  void run_block(const CpuConv2dBatch& batch, ptrdiff_t pixel, int block, DepthwiseRun& run) const {
    const int channel = block * kernels_.channels;
    const ptrdiff_t slot = static_cast<ptrdiff_t>(block) * kernels_.slots;
    run.tap_groups = tap_groups_;
    run.channel = channel;
    run.w = weight_.data() + slot * padded_taps_;
    run.init = init_.data() + slot;
    run.multiplier = multiplier_.data() + slot;
    run.bias = bias_.data() + slot;
    run.channels = std::min(kernels_.channels, g_.out_c - channel);
    if (epilogue_.has_residual) run.residual = batch.residual + pixel * g_.residual_stride + channel;
    run.residual_stride = g_.residual_stride;
    run.y = static_cast<uint8_t*>(batch.y) + pixel * g_.out_stride + channel;
    run.y_stride = g_.out_stride;
    run.epilogue = &epilogue_;
    narrow(block) ? kernels_.run_narrow(run) : kernels_.run(run);
  }

  Conv2dShape g_;
  CpuIsa isa_;
  const DepthwiseKernels& kernels_;
  Epilogue epilogue_;
  int taps_ = 0, tap_groups_ = 0, padded_taps_ = 0, blocks_ = 0;
  bool table_ = false;                    // whether each pixel of a row has its own pointers
  int first_inner_ = 0, last_inner_ = 0;  // output columns whose windows lie within the image's width
  std::vector<uint8_t> padding_;          // an image row of zero points
  AlignedArray<int8_t> weight_;
  AlignedArray<int32_t> init_;
  AlignedArray<float> multiplier_, bias_;
};

}  // namespace

std::unique_ptr<CpuConv2d> make_depthwise_conv2d(const Conv2dShape& shape, const Conv2dParams& params,
                                                 const Conv2dWeights& weights, CpuIsa isa) {
  return std::make_unique<DepthwiseConv2d>(shape, params, weights, isa);
}

}  // namespace octet::kernels

// Any convolution as a matrix product, rows = output pixels, columns = output channels, over the micro-kernels of one
// instruction set.
//
// Rows: a 1x1 convolution of stride 1 reads the activations where they lie. Any other one is gathered first (im2row):
// R * S * C bytes an output pixel, zero point where padding is, so that micro-kernels know no borders, strides or
// dilations. A gathered byte is used once for every output channel, so the copy costs 1 / out_c of the arithmetic.
//
// Blocking: a task owns a block of rows and a range of channel blocks of one group. Its rows stay in L2 (kRowBudget),
// a channel block's weights (k x 32 bytes, mostly within L1) are used by all panels of 14 rows before the next block
// is touched, and k is never split: accumulators go straight from registers to codes.
#include <algorithm>
#include <cstring>
#include <string>

#include "kernels/conv2d_int8/cpu_pack.h"
#include "kernels/conv2d_int8/cpu_paths.h"

namespace octet::kernels {
namespace {

constexpr int kRowBudget = 256 * 1024;    // bytes of rows a task keeps in L2
constexpr double kMinTaskWork = 1 << 20;  // multiply-adds below which handing out a task costs too much
constexpr int kTasks = 8;                 // tasks wanted of a layer: an odd one out costs 2 threads at most 1/8

/// How a batch is cut into tasks.
struct Grid {
  int rows = 0;       // output pixels of the batch
  int row_block = 0;  // rows of a task
  int row_tasks = 0;
  int column_block = 0;  // channel blocks of a task
  int column_tasks = 0;
};

class GemmConv2d final : public CpuConv2d {
 public:
  GemmConv2d(const Conv2dShape& shape, const Conv2dParams& params, const GemmKernels& kernels)
      : g_(shape), kernels_(kernels), epilogue_(make_epilogue(params)), x_zero_point_(params.x_zero_point) {
    const bool flat = g_.out_h * g_.out_w == 1;
    panel_ = flat ? kernels.flat_rows : kernels.rows;
    weights_ = pack_gemm(shape, params, kernels, flat ? kernels.flat_width : kernels.width);
    const bool one_by_one =
        g_.kernel_h == 1 && g_.kernel_w == 1 && g_.stride_h == 1 && g_.stride_w == 1 && g_.pad_h == 0 && g_.pad_w == 0;
    direct_ = one_by_one && kernels.activation_bytes == 1;
    // An odd number of cache lines between rows spreads them over all sets of the L1 cache.
    row_bytes_ = direct_ ? g_.in_stride : (round_up(weights_.k * kernels.activation_bytes, 64) | 64);
    max_rows_ = std::max(panel_, kRowBudget / row_bytes_ / panel_ * panel_);
  }

  std::string name() const override {
    return "conv" + std::to_string(g_.kernel_h) + "x" + std::to_string(g_.kernel_w) + "_" + kernels_.isa + "_" +
           std::to_string(panel_) + "x" + std::to_string(weights_.block_channels) + (direct_ ? "" : "_gathered");
  }
  size_t packed_bytes() const override { return weights_.bytes(); }
  size_t workspace_bytes() const override {
    return direct_ ? 0 : static_cast<size_t>(max_rows_) * row_bytes_ + kCpuReadSlack;
  }
  int tasks(int images) const override {
    const Grid grid = make_grid(images);
    return g_.groups * grid.row_tasks * grid.column_tasks;
  }

  void run(const CpuConv2dBatch& batch, int begin, int end, void* workspace) const override {
    const Grid grid = make_grid(batch.images);
    for (int task = begin; task < end; ++task) {
      const int row_task = task % grid.row_tasks, rest = task / grid.row_tasks;
      run_task(batch, grid, rest / grid.column_tasks, row_task, rest % grid.column_tasks,
               static_cast<uint8_t*>(workspace));
    }
  }

 private:
  Grid make_grid(int images) const {
    Grid grid;
    grid.rows = images * g_.out_h * g_.out_w;
    const double work = static_cast<double>(grid.rows) * weights_.k * weights_.padded_channels;
    const int wanted = std::clamp(static_cast<int>(work / kMinTaskWork), 1, ceil_div(kTasks * images, g_.groups));
    // Large weights are split between threads rather than read by each; otherwise rows are.
    const bool split_columns = static_cast<double>(weights_.k) * weights_.padded_channels > 512 * 1024;
    const int panels = ceil_div(grid.rows, panel_);
    int row_tasks = ceil_div(grid.rows, max_rows_);
    int column_tasks = split_columns ? std::min(weights_.blocks, ceil_div(wanted, row_tasks)) : 1;
    if (row_tasks * column_tasks < wanted) row_tasks = std::min(panels, ceil_div(wanted, column_tasks));
    if (row_tasks * column_tasks < wanted) column_tasks = std::min(weights_.blocks, ceil_div(wanted, row_tasks));
    grid.row_block = ceil_div(panels, row_tasks) * panel_;
    grid.row_tasks = ceil_div(grid.rows, grid.row_block);
    grid.column_block = ceil_div(weights_.blocks, column_tasks);
    grid.column_tasks = ceil_div(weights_.blocks, grid.column_block);
    return grid;
  }

  void run_task(const CpuConv2dBatch& batch, const Grid& grid, int group, int row_task, int column_task,
                uint8_t* workspace) const {
    const int first_row = row_task * grid.row_block;
    const int rows = std::min(grid.row_block, grid.rows - first_row);
    const int group_c = g_.in_c / g_.groups;
    const uint8_t* a = workspace;
    if (direct_) {
      a = batch.x + static_cast<ptrdiff_t>(first_row) * g_.in_stride + group * group_c;
    } else {
      for (int i = 0; i < rows; ++i) {
        gather_row(batch.x + group * group_c, first_row + i, workspace + static_cast<ptrdiff_t>(i) * row_bytes_);
      }
    }
    const int first_block = column_task * grid.column_block;
    const int last_block = std::min(first_block + grid.column_block, weights_.blocks);
    for (int block = first_block; block < last_block; ++block) {
      run_block(batch, a, first_row, rows, group, block);
    }
  }

  /// One channel block for all rows of a task, panel by panel; panels are of like height, so that none is too low to
  /// keep the pipes full.
  void run_block(const CpuConv2dBatch& batch, const uint8_t* a, int first_row, int rows, int group, int block) const {
    const int first_channel = block * weights_.block_channels;  // within the group
    const int width = std::min(weights_.block_channels, weights_.padded_channels - first_channel) / kernels_.lanes;
    const int constants = group * weights_.padded_channels + first_channel;
    const int out_channel = group * weights_.group_channels + first_channel;
    GemmTile tile;
    tile.a_stride = row_bytes_;
    tile.w = weights_.weight.data() +
             (static_cast<ptrdiff_t>(group) * weights_.padded_channels + first_channel) * weights_.k;
    tile.k_steps = weights_.k / kernels_.k_group;
    tile.init = weights_.init.data() + constants;
    tile.multiplier = weights_.multiplier.data() + constants;
    tile.bias = weights_.bias.data() + constants;
    tile.channels = std::min(weights_.block_channels, weights_.group_channels - first_channel);
    tile.residual_stride = g_.residual_stride;
    tile.y_stride = g_.out_stride;
    tile.epilogue = &epilogue_;
    const int panels = ceil_div(rows, panel_);
    for (int panel = 0, row = 0; panel < panels; ++panel) {
      const int height = ceil_div(rows - row, panels - panel);
      const ptrdiff_t out_row = first_row + row;
      const ptrdiff_t out = out_row * g_.out_stride + out_channel;
      tile.a = a + static_cast<ptrdiff_t>(row) * row_bytes_;
      tile.y = epilogue_.float_output ? static_cast<void*>(static_cast<float*>(batch.y) + out)
                                      : static_cast<void*>(static_cast<uint8_t*>(batch.y) + out);
      if (epilogue_.has_residual) tile.residual = batch.residual + out_row * g_.residual_stride + out_channel;
      kernels_.kernel[width - 1][height - 1](tile);
      row += height;
    }
  }

  /// Writes [R][S][tap_bytes] of one output pixel. x: the group's first channel of the batch.
  void gather_row(const uint8_t* x, int row, uint8_t* to) const {
    const int per_image = g_.out_h * g_.out_w;
    const int image = row / per_image, oy = row % per_image / g_.out_w, ox = row % g_.out_w;
    x += static_cast<ptrdiff_t>(image) * g_.in_h * g_.in_w * g_.in_stride;
    const int ix = ox * g_.stride_w - g_.pad_w;
    const int first = std::min(g_.kernel_w, ix >= 0 ? 0 : ceil_div(-ix, g_.dilation_w));
    const int last = std::max(first, ix >= g_.in_w ? 0 : std::min(g_.kernel_w, ceil_div(g_.in_w - ix, g_.dilation_w)));
    for (int r = 0; r < g_.kernel_h; ++r) {
      const int iy = oy * g_.stride_h - g_.pad_h + r * g_.dilation_h;
      if (iy < 0 || iy >= g_.in_h) {
        to = fill_taps(to, g_.kernel_w);
        continue;
      }
      to = fill_taps(to, first);
      const uint8_t* from = x + (static_cast<ptrdiff_t>(iy) * g_.in_w + ix + first * g_.dilation_w) *
                                    static_cast<ptrdiff_t>(g_.in_stride);
      if (g_.in_stride == weights_.tap_bytes && g_.dilation_w == 1) {  // neighbouring taps touch: one copy
        to = copy(to, from, (last - first) * weights_.tap_bytes);
      } else {
        for (int s = first; s < last; ++s, from += g_.dilation_w * g_.in_stride)
          to = copy(to, from, weights_.tap_bytes);
      }
      to = fill_taps(to, g_.kernel_w - last);
    }
  }

  uint8_t* fill_taps(uint8_t* to, int taps) const {
    const int n = taps * weights_.tap_bytes;
    if (kernels_.activation_bytes == 1) {
      std::memset(to, x_zero_point_, n);
      return to + n;
    }
    for (int i = 0; i < n; ++i) store_wide(to + 2 * i, static_cast<uint8_t>(x_zero_point_));
    return to + 2 * n;
  }

  /// Copies n codes in steps of 16: up to 15 more are read (kCpuReadSlack) and written (before their own are).
  uint8_t* copy(uint8_t* to, const uint8_t* from, int n) const {
    if (kernels_.activation_bytes == 1) {
      for (int i = 0; i < n; i += 16) std::memcpy(to + i, from + i, 16);
      return to + n;
    }
    for (int i = 0; i < n; ++i) store_wide(to + 2 * i, from[i]);
    return to + 2 * n;
  }

  static void store_wide(uint8_t* to, uint8_t code) {
    const int16_t wide = code;
    std::memcpy(to, &wide, 2);
  }

  Conv2dShape g_;
  const GemmKernels& kernels_;
  Epilogue epilogue_;
  int x_zero_point_;
  PackedGemm weights_;
  bool direct_ = false;
  int panel_ = 0;      // rows of the tallest micro-kernel
  int row_bytes_ = 0;  // from one row to the next
  int max_rows_ = 0;   // rows the workspace holds
};

}  // namespace

std::unique_ptr<CpuConv2d> make_gemm_conv2d(const Conv2dShape& shape, const Conv2dParams& params,
                                            const GemmKernels& kernels) {
  return std::make_unique<GemmConv2d>(shape, params, kernels);
}

}  // namespace octet::kernels

// SPDX-License-Identifier: Apache-2.0
// The path for any convolution as a matrix product (rows are output pixels, columns are output channels), by the
// micro-kernels of one instruction set.
//
// Rows: a 1x1 convolution of stride 1 reads the activations in place. For any other, rows are gathered first (Im2Row),
// so that micro-kernels know no borders, strides or dilations.
//
// Blocking: k is never split, so accumulators go directly from registers to codes. A task computes a range of rows and
// a range of channel blocks of one group, and visits its tiles in one of two orders:
//  - If the weights fit in L2 (most layers), panel by panel of rows. A panel is gathered and stays in L1 while all
//    weights stream from L2 (128 bytes for 14 cycles of arithmetic), and whole lines of output are written.
//  - Otherwise channel block by channel block. The task's rows stay in L2 (kRowBudget) and the weights, which come from
//    L3 or memory, are read once; while the first panel uses a block, the next block is prefetched.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/conv/cpu/paths.h"
#include "kernels/core/divide.h"

namespace octet::kernels {
namespace {

constexpr int kRowBudget = 128 * 1024;      // bytes of rows that a task keeps in L2
constexpr int kWeightBudget = 640 * 1024;   // bytes of weights that stay in L2 as well
constexpr double kLeastTaskWork = 1 << 19;  // with fewer multiply-adds, distributing a task costs too much
constexpr int kTasksAnImage = 8;            // wanted per layer, so that threads finish together
constexpr double kWorkPerByte = 16;         // multiply-adds that take as long as reading a byte of weights from memory

/// Returns whether every value before rounding is a number within int32, whatever the codes are.
bool fits_int32(const Conv2dShape& shape, const Conv2dParams& params, const Conv2dWeights& weights) {
  constexpr double kAccumulator = 2147483648.0, kLimit = 2e9;  // the limit leaves room for float's rounding
  const double residual = params.has_residual ? 255.0 * std::abs(params.residual_multiplier) : 0;
  for (int channel = 0; channel < shape.out_c; ++channel) {
    const double value = kAccumulator * std::abs(weights.multiplier[channel]) + std::abs(weights.bias[channel]);
    if (!(value + residual < kLimit)) return false;  // NaN is not less
  }
  return true;
}

/// How a batch is divided into tasks.
struct Grid {
  int rows = 0;          ///< output pixels of the batch
  int row_block = 0;     ///< rows of a task
  int row_tasks = 0;     ///< tasks along the rows
  int column_block = 0;  ///< channel blocks of a task
  int column_tasks = 0;  ///< tasks along the channels
};

class GemmConv2d final : public CpuConv2d {
 public:
  GemmConv2d(const Conv2dShape& shape, const Conv2dParams& params, const Conv2dWeights& weights, CpuIsa isa)
      : g_(shape),
        isa_(isa),
        kernels_(gemm_kernels(isa)),
        epilogue_(make_epilogue(params)),
        flat_(shape.out_h * shape.out_w == 1),
        panel_(flat_ ? kernels_.flat_rows : kernels_.rows),
        weights_(pack_gemm(shape, params, weights, kernels_, flat_ ? kernels_.flat_width : kernels_.width)),
        im2row_(shape, params.x.zero_point, weights_.tap_bytes, kernels_) {
    const bool pixel_by_pixel = g_.kernel_h == 1 && g_.kernel_w == 1 && g_.stride_h == 1 && g_.stride_w == 1 &&
                                g_.out_h == g_.in_h && g_.out_w == g_.in_w;
    direct_ = pixel_by_pixel && kernels_.activation_bytes == 1;
    by_panel_ = static_cast<double>(weights_.k) * weights_.padded_channels <= kWeightBudget;
    // An odd number of cache lines between rows spreads them over all sets of the L1 cache.
    row_bytes_ = direct_ ? g_.in_stride : (round_up(weights_.k * kernels_.activation_bytes, 64) | 64);
    max_rows_ = by_panel_ && !direct_ ? panel_ : std::max(panel_, kRowBudget / row_bytes_ / panel_ * panel_);
    epilogue_.fits_int32 = fits_int32(shape, params, weights);
    for (int group = 0; group < g_.groups; ++group) {
      for (int block = 0; block < weights_.blocks; ++block) tiles_.push_back(make_tile(group, block));
    }
  }

  std::string name() const override {
    return conv_name(g_, {"_", kernels_.isa, "_", std::to_string(panel_), "x", std::to_string(weights_.block_channels),
                          direct_ ? "" : "_gathered"});
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
      Part part;
      part.group = rest / grid.column_tasks;
      part.first_block = rest % grid.column_tasks * grid.column_block;
      part.last_block = std::min(part.first_block + grid.column_block, weights_.blocks);
      part.first_row = row_task * grid.row_block;
      part.rows = std::min(grid.row_block, grid.rows - part.first_row);
      by_panel_ ? run_by_panel(batch, part, static_cast<uint8_t*>(workspace))
                : run_by_block(batch, part, static_cast<uint8_t*>(workspace));
    }
  }

 private:
  /// The rows and channel blocks that a task computes.
  struct Part {
    int group = 0, first_block = 0, last_block = 0, first_row = 0, rows = 0;
  };

  /// Returns a tile with the fields that depend on the channel block only.
  GemmTile make_tile(int group, int block) const {
    const int first_channel = block * weights_.block_channels;  // within the group
    const int constants = group * weights_.padded_channels + first_channel;
    GemmTile tile;
    tile.a_stride = row_bytes_;
    tile.w = weights_.weight.data() + static_cast<ptrdiff_t>(constants) * weights_.k;
    tile.k_steps = weights_.k / kernels_.k_group;
    tile.init = weights_.init.data() + constants;
    tile.multiplier = weights_.multiplier.data() + constants;
    tile.bias = weights_.bias.data() + constants;
    tile.channels = std::min(weights_.block_channels, weights_.group_channels - first_channel);
    tile.residual_stride = g_.residual_stride;
    tile.y_stride = g_.out_stride;
    tile.epilogue = &epilogue_;
    return tile;
  }

  Grid make_grid(int images) const {
    Grid grid;
    grid.rows = images * g_.out_h * g_.out_w;
    const int panels = ceil_div(grid.rows, panel_);
    const double weight_bytes = static_cast<double>(weights_.k) * weights_.padded_channels;
    const double work = weight_bytes * std::max<double>(grid.rows, flat_ ? kWorkPerByte : 0);
    const int wanted =
        std::clamp(static_cast<int>(work / kLeastTaskWork), 1, ceil_div(kTasksAnImage * images, g_.groups));
    // Large weights are divided among tasks, so that each task reads only a part; otherwise rows are divided.
    int row_tasks = by_panel_ ? 1 : ceil_div(grid.rows, max_rows_), column_tasks = 1;
    if (!by_panel_) column_tasks = std::min(weights_.blocks, ceil_div(wanted, row_tasks));
    if (row_tasks * column_tasks < wanted) row_tasks = std::min(panels, ceil_div(wanted, column_tasks));
    if (row_tasks * column_tasks < wanted) column_tasks = std::min(weights_.blocks, ceil_div(wanted, row_tasks));
    grid.column_block = ceil_div(weights_.blocks, column_tasks);
    grid.column_tasks = ceil_div(weights_.blocks, grid.column_block);

    int best = 0;
    for (int candidate = row_tasks; candidate <= std::min(panels, 2 * row_tasks); ++candidate) {
      const int block = ceil_div(panels, candidate), tasks = ceil_div(panels, block) * grid.column_tasks * g_.groups;
      const int busiest = block * (2 * ceil_div(tasks, 2) + 4 * ceil_div(tasks, 4));  // panels on 2 and on 4 threads
      if (best == 0 || busiest < best) {
        best = busiest;
        grid.row_block = block * panel_;
      }
    }
    grid.row_tasks = ceil_div(grid.rows, grid.row_block);
    return grid;
  }

  void run_by_panel(const CpuConv2dBatch& batch, const Part& part, uint8_t* workspace) const {
    const int panels = ceil_div(part.rows, panel_);
    for (int panel = 0, done = 0; panel < panels; ++panel) {
      const int rows = ceil_div(part.rows - done, panels - panel), row = part.first_row + done;
      const uint8_t* a = row_source(batch, part.group, row, rows, workspace);
      for (int block = part.first_block; block < part.last_block; ++block) {
        GemmTile tile = tiles_[part.group * weights_.blocks + block];
        run_tile(batch, part.group, block, row, rows, a, tile);
      }
      look_up(batch, part, part.first_block, part.last_block, row, rows);
      done += rows;
    }
  }

  void run_by_block(const CpuConv2dBatch& batch, const Part& part, uint8_t* workspace) const {
    const uint8_t* a = row_source(batch, part.group, part.first_row, part.rows, workspace);
    const int panels = ceil_div(part.rows, panel_);
    for (int block = part.first_block; block < part.last_block; ++block) {
      const int index = part.group * weights_.blocks + block;
      GemmTile tile = tiles_[index];
      if (block + 1 < part.last_block) tile.next_w = tiles_[index + 1].w;
      for (int panel = 0, done = 0; panel < panels; ++panel) {
        const int rows = ceil_div(part.rows - done, panels - panel);
        run_tile(batch, part.group, block, part.first_row + done, rows, a + static_cast<ptrdiff_t>(done) * row_bytes_,
                 tile);
        look_up(batch, part, block, block + 1, part.first_row + done, rows);
        tile.next_w = nullptr;
        done += rows;
      }
    }
  }

  /// Returns a pointer to rows [row, row + rows): in x itself, or gathered into the workspace.
  const uint8_t* row_source(const CpuConv2dBatch& batch, int group, int row, int rows, uint8_t* workspace) const {
    const uint8_t* x = batch.x + group * (g_.in_c / g_.groups);
    if (direct_) return x + static_cast<ptrdiff_t>(row) * g_.in_stride;
    im2row_.gather(x, row, rows, workspace, row_bytes_);
    return workspace;
  }

  void run_tile(const CpuConv2dBatch& batch, int group, int block, ptrdiff_t row, int rows, const uint8_t* a,
                GemmTile& tile) const {
    const int first_channel = block * weights_.block_channels;
    const int width = std::min(weights_.block_channels, weights_.padded_channels - first_channel) / kernels_.lanes;
    const int channel = group * weights_.group_channels + first_channel;
    const ptrdiff_t out = row * g_.out_stride + channel;
    tile.a = a;
    tile.y = epilogue_.float_output ? static_cast<void*>(static_cast<float*>(batch.y) + out)
                                    : static_cast<void*>(static_cast<uint8_t*>(batch.y) + out);
    if (epilogue_.has_residual) tile.residual = batch.residual + row * g_.residual_stride + channel;
    kernels_.kernel[width - 1][rows - 1](tile);
  }

  /// Applies the batch's look-up table, if any, to rows [row, row + rows) of the part's channel blocks [first, last).
  void look_up(const CpuConv2dBatch& batch, const Part& part, int first, int last, ptrdiff_t row, int rows) const {
    if (batch.lookup == nullptr) return;
    const int channel = first * weights_.block_channels;
    const int end = std::min(last * weights_.block_channels, weights_.group_channels);
    uint8_t* y = static_cast<uint8_t*>(batch.y) + row * g_.out_stride + part.group * weights_.group_channels + channel;
    look_up_rows(isa_, *batch.lookup, y, rows, g_.out_stride, end - channel);
  }

  Conv2dShape g_;
  CpuIsa isa_;
  const GemmKernels& kernels_;
  Epilogue epilogue_;
  bool flat_;  // an image has one pixel: a linear layer
  int panel_;  // rows of the tallest micro-kernel
  PackedGemm weights_;
  Im2Row im2row_;
  bool direct_ = false;    // rows are read in place
  bool by_panel_ = false;  // tiles are visited panel by panel, not block by block
  int row_bytes_ = 0;      // bytes from one row to the next
  int max_rows_ = 0;       // rows the workspace holds
  std::vector<GemmTile> tiles_;
};

}  // namespace

std::unique_ptr<CpuConv2d> make_gemm_conv2d(const Conv2dShape& shape, const Conv2dParams& params,
                                            const Conv2dWeights& weights, CpuIsa isa) {
  return std::make_unique<GemmConv2d>(shape, params, weights, isa);
}

}  // namespace octet::kernels

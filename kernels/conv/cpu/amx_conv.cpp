// SPDX-License-Identifier: Apache-2.0
// The path of AMX: a convolution as a product of panels, 32 output pixels each, and blocks of 32 channels.
//
// The pixels of a 1x1 convolution of stride 1 are the product's rows as they lie in memory. For any other a task copies
// the image's rows that it needs, with padding, into its workspace (amx_rows.h), and reads each tap at an offset of its
// own: nothing is gathered tap by tap.
//
// A task computes a range of panels and a range of blocks. A few panels, whose codes stay in L1, go through all of the
// task's weights, which stay in L2. If the weights are too large for that, all panels go through one block after the
// other, so that each is read once.
#include <algorithm>
#include <string>
#include <vector>

#include "kernels/conv/cpu/amx.h"
#include "kernels/conv/cpu/amx_rows.h"
#include "kernels/conv/cpu/paths.h"
#include "kernels/core/divide.h"
#include "kernels/operators/lookup.h"

namespace octet::kernels {
namespace {

constexpr int kPanelBudget = 24 * 1024;         // bytes of codes that stay in L1 while weights change
constexpr int kTileWeightBudget = 1024 * 1024;  // bytes of weights that stay in L2 while panels change
constexpr double kLeastTileWork = 1 << 22;      // with fewer multiply-adds, distributing a task costs too much
constexpr int kTileTasksAnImage = 4;            // wanted, so that threads finish together

/// How a batch is divided into tasks, for each group.
struct TileGrid {
  int panels = 0;                          ///< of the batch
  int row_block = 0, row_tasks = 0;        ///< panels of a task, tasks along the panels
  int column_block = 0, column_tasks = 0;  ///< blocks of a task, tasks along the blocks
};

class AmxConv2d final : public CpuConv2d {
 public:
  AmxConv2d(const Conv2dShape& shape, const Conv2dParams& params, const Conv2dWeights& weights)
      : g_(shape),
        epilogue_(make_epilogue(params)),
        rows_(shape, params.x.zero_point),
        group_channels_(shape.out_c / shape.groups),
        blocks_(ceil_div(group_channels_, kTileChannels)) {
    pack(params, weights);
    together_ = std::max(1, kPanelBudget / (kTilePixels * static_cast<int>(k())));
    for (const TileRows::Piece& piece : rows_.pieces()) piece_at_.push_back(piece.at);
  }

  std::string name() const override { return conv_name(g_, {"_amx_32x32", rows_.in_place() ? "" : "_copied"}); }
  size_t packed_bytes() const override { return weight_.bytes() + init_.bytes() + multiplier_.bytes() + bias_.bytes(); }
  size_t workspace_bytes() const override { return panel_table_bytes() + rows_.workspace_bytes(); }
  int tasks(int images) const override {
    const TileGrid grid = make_grid(images);
    return g_.groups * grid.row_tasks * grid.column_tasks;
  }

  void run(const CpuConv2dBatch& batch, int begin, int end, void* workspace) const override {
    const TileGrid grid = make_grid(batch.images);
    auto* panels = static_cast<TilePanel*>(workspace);
    uint8_t* copies = static_cast<uint8_t*>(workspace) + panel_table_bytes();
    for (int task = begin; task < end; ++task) {
      const int row_task = task % grid.row_tasks, rest = task / grid.row_tasks;
      const int group = rest / grid.column_tasks, block = rest % grid.column_tasks * grid.column_block;
      const int panel = row_task * grid.row_block;
      const int count = std::min(grid.row_block, grid.panels - panel);
      TilePair end_pairs[kTileEndPairs];
      const uint8_t* x = batch.x + static_cast<ptrdiff_t>(group) * (g_.in_c / g_.groups);
      rows_.make_panels(x, batch.images, panel, count, copies, end_pairs, panels);

      const int first = group * group_channels_ + block * kTileChannels;  // channel
      const size_t constants = (static_cast<size_t>(group) * blocks_ + block) * kTileChannels;
      TileProduct p;
      p.panels = panels;
      p.panel_count = count;
      p.rows = rows_.panel_rows(batch.images);
      p.a_stride = rows_.bytes_per_row();
      p.in_place = rows_.in_place();
      p.piece_at = piece_at_.data();
      p.pieces = static_cast<int>(piece_at_.size());
      p.piece_bytes = rows_.piece_bytes();
      p.w = weight_.data() + constants * k();
      p.init = init_.data() + constants;
      p.multiplier = multiplier_.data() + constants;
      p.bias = bias_.data() + constants;
      p.blocks = std::min(grid.column_block, blocks_ - block);
      p.channels = std::min(p.blocks * kTileChannels, group_channels_ - block * kTileChannels);
      const bool weights_stay = static_cast<double>(p.blocks) * kTileChannels * k() <= kTileWeightBudget;
      p.together = weights_stay ? together_ : count;
      if (batch.residual != nullptr) p.residual = batch.residual + first;
      p.residual_stride = g_.residual_stride;
      p.y = static_cast<uint8_t*>(batch.y) + first;
      p.y_stride = g_.out_stride;
      if (batch.lookup != nullptr) p.lookup = batch.lookup->byte;
      p.epilogue = &epilogue_;
      amx_product(p);
    }
  }

 private:
  /// Packs weights and constants: [groups][blocks][2][pieces][piece_bytes / 4][kTileChannels / 2][4].
  void pack(const Conv2dParams& params, const Conv2dWeights& weights) {
    const int taps = g_.kernel_h * g_.kernel_w, in_channels = g_.in_c / g_.groups;
    const size_t constants = static_cast<size_t>(g_.groups) * blocks_ * kTileChannels;
    weight_ = AlignedArray<int8_t>(constants * k());
    init_ = AlignedArray<int32_t>(constants);
    multiplier_ = AlignedArray<float>(constants);
    bias_ = AlignedArray<float>(constants);
    std::fill_n(weight_.data(), constants * k(), int8_t{0});
    std::fill_n(init_.data(), constants, 0);
    std::fill_n(multiplier_.data(), constants, 0.0f);
    std::fill_n(bias_.data(), constants, 0.0f);
    std::vector<int> sources;  // which weight of a channel, or -1, by k
    for (const TileRows::Piece& piece : rows_.pieces())
      for (int i = 0; i < rows_.piece_bytes(); ++i) sources.push_back(rows_.weight_of(piece, i));
    for (int channel = 0; channel < g_.out_c; ++channel) {
      const int in_group = channel % group_channels_, slot = tile_slot(in_group % kTileChannels);
      const size_t block = static_cast<size_t>(channel / group_channels_) * blocks_ + in_group / kTileChannels;
      const int8_t* from = weights.weight + static_cast<size_t>(channel) * taps * in_channels;
      constexpr int kHalf = kTileChannels / 2;
      int8_t* to = weight_.data() + (2 * block + slot / kHalf) * kHalf * k();
      uint32_t sum = 0;  // unsigned, because sums may overflow int32 where the whole accumulator does not
      for (size_t i = 0; i < sources.size(); ++i) {
        if (sources[i] < 0) continue;
        const int8_t w = from[sources[i]];
        to[(i / 4 * kHalf + slot % kHalf) * 4 + i % 4] = w;
        sum += static_cast<uint32_t>(w);
      }
      const size_t at = block * kTileChannels + slot;
      init_.data()[at] = static_cast<int32_t>(static_cast<uint32_t>(-params.x.zero_point) * sum);
      multiplier_.data()[at] = weights.multiplier[channel];
      bias_.data()[at] = weights.bias[channel];
    }
  }

  size_t k() const { return rows_.pieces().size() * rows_.piece_bytes(); }
  size_t panel_table_bytes() const { return round_up(rows_.most_panels() * static_cast<int>(sizeof(TilePanel)), 64); }

  /// Divides a batch along the panels, so that a thread finds the rows that it wrote in its caches; also along the
  /// blocks if the weights are larger than what is read and written, or if there are few panels.
  TileGrid make_grid(int images) const {
    TileGrid grid;
    grid.panels = rows_.panels(images);
    const double weights = static_cast<double>(blocks_) * kTileChannels * k();
    const double codes =
        static_cast<double>(images) * (static_cast<double>(g_.in_h) * g_.in_w * g_.in_stride / g_.groups +
                                       static_cast<double>(g_.out_h) * g_.out_w * group_channels_);
    const int wanted = std::clamp(static_cast<int>(grid.panels * kTilePixels * weights / kLeastTileWork), 1,
                                  ceil_div(kTileTasksAnImage * images, g_.groups));
    const int most_rows = ceil_div(grid.panels, 2);
    const int columns = std::min(blocks_, std::max(weights > codes ? 2 : 1, ceil_div(wanted, most_rows)));
    grid.column_block = ceil_div(blocks_, columns);
    grid.column_tasks = ceil_div(blocks_, grid.column_block);

    const int least =
        std::max(std::min(most_rows, ceil_div(wanted, grid.column_tasks)), ceil_div(grid.panels, rows_.most_panels()));
    int best = 0;
    for (int candidate = least; candidate <= std::min(grid.panels, 2 * least); ++candidate) {
      const int block = ceil_div(grid.panels, candidate);
      const int tasks = ceil_div(grid.panels, block) * grid.column_tasks * g_.groups;
      const int busiest = block * (2 * ceil_div(tasks, 2) + 4 * ceil_div(tasks, 4));  // panels on 2 and on 4 threads
      if (best == 0 || busiest < best) {
        best = busiest;
        grid.row_block = block;
      }
    }
    grid.row_tasks = ceil_div(grid.panels, grid.row_block);
    return grid;
  }

  Conv2dShape g_;
  Epilogue epilogue_;
  TileRows rows_;
  int together_ = 1;             // panels whose codes stay in L1 together
  int group_channels_, blocks_;  // output channels and blocks of a group
  std::vector<int32_t> piece_at_;
  AlignedArray<int8_t> weight_;
  AlignedArray<int32_t> init_;             // [groups][blocks][kTileChannels]: -zx * sum(w)
  AlignedArray<float> multiplier_, bias_;  // the same
};

}  // namespace

/// Linear layers have few rows, and groups of few channels few columns; sums of 64 products and fewer take as long with
/// AVX-512 (1x1 to 256 channels, two cores of Emerald Rapids: 0.9 to 1.1 times), since most of it is making codes.
bool amx_fits(const Conv2dShape& g, const Conv2dParams& params) {
  constexpr int kLowestSum = 65, kLeastChannels = 16;
  return !params.y.float_output && g.out_h * g.out_w > 1 && g.out_c / g.groups >= kLeastChannels &&
         g.in_c / g.groups * g.kernel_h * g.kernel_w >= kLowestSum;
}

std::unique_ptr<CpuConv2d> make_amx_conv2d(const Conv2dShape& shape, const Conv2dParams& params,
                                           const Conv2dWeights& weights) {
  return std::make_unique<AmxConv2d>(shape, params, weights);
}

}  // namespace octet::kernels

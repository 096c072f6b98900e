// SPDX-License-Identifier: Apache-2.0
// The facts about operators in one table. Whoever asks what an operator is like asks here.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "src/net/graph.h"
#include "src/net/int8_graph.h"

namespace octet {

/// How many multipliers an int8 node has. slopes: one for values that are not negative and one for each group.
enum class Multipliers { none, one, one_per_input, one_per_channel, slopes };

struct OpTraits {
  Op op;
  std::string_view name;       ///< in recipes and checkpoints
  std::optional<Int8Op> int8;  ///< the int8 operator of the same name; none: fuse and convert remove the operator
  size_t min_inputs, max_inputs;
  bool windowed;         ///< has a Window; subsample_pad uses only its strides
  bool grouped;          ///< has groups
  bool has_factor;       ///< has factor_h and factor_w
  bool weighted;         ///< has weights
  bool passes_codes_on;  ///< its output holds codes of its input, so both have the same qparams
  bool keeps_sign;       ///< gives nothing negative if no input is negative
  bool passes_scale_on;  ///< f(s x) = s f(x) for s > 0, for each channel separately; a relu6 after it became a relu
  Multipliers multipliers;
  int version;  ///< the oldest version of the checkpoint format that has it
};

const OpTraits& traits(Op op);
const OpTraits& traits(Int8Op op);

inline bool has_weight(Int8Op op) { return traits(op).weighted; }
inline bool passes_codes_on(Op op) { return traits(op).passes_codes_on; }
inline bool passes_codes_on(Int8Op op) { return traits(op).passes_codes_on; }

/// Whether an int8 node of this operator may give floats: only an operator with multipliers has a value that is not yet
/// a code.
inline bool can_give_floats(const OpTraits& op) { return op.multipliers != Multipliers::none; }

/// Whether the node is a relu or relu6 or has one fused into it, and so gives nothing negative.
bool activates(const Node& node);

/// Returns "3 inputs, needs 1 to 2" if an operator does not take this many inputs, else "".
std::string arity_fault(const OpTraits& op, size_t inputs);

}  // namespace octet

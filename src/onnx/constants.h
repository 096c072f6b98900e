// Constants of an ONNX file: weights, and the integers that its shape arithmetic works on.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "src/onnx/model_file.h"

namespace octet {

/// Stands for the number of images in integers that come from a shape: an imported network takes any batch.
inline constexpr int64_t kBatchSize = std::numeric_limits<int64_t>::min() + 4242;

struct Constant {
  std::vector<int64_t> shape;
  bool real = false;              ///< float32, or float16 and bfloat16 as float32; else integers or bool
  bool is_finite = true;          ///< no NaN and no infinity among the reals
  int type = 0;                   ///< of the file's tensor, as ONNX numbers types; 0: computed
  std::vector<float> reals;       ///< row-major
  std::vector<int64_t> integers;  ///< row-major
  std::vector<float> scale;       ///< of reals that are codes times it: one, or one for each index along `axis`
  int64_t axis = 0;
  size_t elements() const { return real ? reals.size() : integers.size(); }
  size_t bytes() const { return reals.size() * sizeof(float) + integers.size() * sizeof(int64_t); }
};

/// Whether ONNX's type number stands for float32, float16 or bfloat16, all of which octet computes in float32.
bool is_real_type(int type);

/// A tensor of the file: its own bytes or external data. Throws Error(data) beginning with `where`: other types,
/// sizes that differ from the shape, places outside the file's folder.
Constant read_constant(OnnxFile& file, const onnx::TensorProto& tensor, const std::string& where);

/// "INT8": what ONNX calls the type of this number (TensorProto.DataType); "number 99" where it has none.
std::string type_name(int64_t type);

/// "[64, 3, 7, 7]", the batch as "N".
std::string dims_text(const std::vector<int64_t>& dims);

/// Printable, at most 80 bytes: names come from files that are not trusted.
std::string shown_name(const std::string& name);

}  // namespace octet

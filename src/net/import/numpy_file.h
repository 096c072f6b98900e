// SPDX-License-Identifier: Apache-2.0
// Arrays that numpy saved: a .npy file of np.save, or a .npz file of np.savez, which is a zip of such files. A .npy has
// (numpy.org/doc/stable/reference/generated/numpy.lib.format.html):
//
//   6 bytes       \x93NUMPY
//   2 bytes       major and minor version: 1, 2 or 3, and 0
//   2 or 4 bytes  the length H of the header, little endian; 4 since version 2
//   H bytes       a Python dictionary: {'descr': '<f4', 'fortran_order': False, 'shape': (300, 3, 224, 224), }
//   the rest      the elements
//
// Every size is checked against the file, and nothing in it is executed: arrays of Python objects are refused.
#pragma once

#include <cstddef>
#include <string>

#include "src/base/safetensors.h"

namespace octet {

/// Returns the arrays of a .npz file by name, or that of a .npy file under the name "". They must be stored in C order,
/// little endian and uncompressed. Throws Error(data), which names the file, the array, what is wrong and the cure.
TensorFile read_numpy_file(const std::string& path);

/// Reads a file that is in memory; `name` stands for the path in messages.
TensorFile parse_numpy_file(const std::byte* data, size_t size, const std::string& name);

}  // namespace octet

// SPDX-License-Identifier: Apache-2.0
// quantize NETWORK.onnx CHECKPOINT PRESET IMAGES...: int8 of a float network by images without labels, and what that
// costs; PRESET is imagenet, yolo, yolox or none. A program outside octet's tree.
#include <cstdio>
#include <octet/octet.hpp>
#include <octet/training.hpp>

int main(int count, char** arguments) try {
  if (count < 5) {
    std::fprintf(stderr, "usage: quantize NETWORK.onnx CHECKPOINT PRESET IMAGES...\n");
    return 2;
  }
  octet::training::QuantizeOptions options;  // options.inputs takes float tensors in place of images and preset
  options.out = arguments[2];
  options.preset = arguments[3];
  options.images.assign(arguments + 4, arguments + count);
  options.repair = "fast";
  options.quiet = true;
  const octet::training::Quantized made = octet::training::quantize(arguments[1], options);
  for (const octet::training::OutputCost& output : made.outputs)
    std::printf("%s: %.1f dB, same class %.1f %%\n", output.name.c_str(), output.sqnr_db, 100 * output.same_class);

  const octet::runtime::Network network(made.checkpoint);
  std::printf("%s: %ld codes, equal on all engines; engine %s runs it\n", made.checkpoint.c_str(), made.codes,
              network.describe().engine);
} catch (const octet::training::Error& error) {
  std::fprintf(stderr, "quantize: %s\n", error.what());
  return static_cast<int>(error.status());
} catch (const octet::runtime::Error& error) {
  std::fprintf(stderr, "quantize: %s\n", error.what());
  return error.status();
}

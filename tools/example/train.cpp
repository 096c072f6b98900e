// SPDX-License-Identifier: Apache-2.0
// train RECIPE RUN IMAGE [KEY=VALUE]...: trains from a recipe, some of its keys changed, then says what is on the
// image. A program outside octet's tree.
#include <cstdio>
#include <octet/octet.hpp>
#include <octet/training.hpp>

int main(int count, char** arguments) try {
  if (count < 4) {
    std::fprintf(stderr, "usage: train RECIPE RUN IMAGE [KEY=VALUE]...\n");
    return 2;
  }
  octet::training::Options options;
  options.directory = arguments[2];
  options.set.assign(arguments + 4, arguments + count);
  options.quiet = true;
  options.epoch_done = [](const octet::training::Epoch& epoch) {
    if (epoch.validation_top1)  // not after every epoch where train.val_interval is above 1
      std::printf("%s %d: top-1 %.2f %%\n", epoch.phase.c_str(), epoch.epoch, 100 * *epoch.validation_top1);
  };
  const octet::training::Result result = octet::training::train(arguments[1], options);
  for (const octet::training::Row& row : result.rows)
    std::printf("%-10s top-1 %.2f %% of %ld images\n", row.name.c_str(), 100 * row.top1, row.images);

  octet::runtime::Network network(result.checkpoint);
  const std::vector<float> logits = network.logits(network.read_picture(arguments[3]));
  size_t best = 0;
  for (size_t i = 1; i < logits.size(); ++i)
    if (logits[i] > logits[best]) best = i;
  std::printf("%s\n", network.class_name(best).c_str());
} catch (const octet::training::Error& error) {
  std::fprintf(stderr, "train: %s\n", error.what());
  return static_cast<int>(error.status());
} catch (const octet::runtime::Error& error) {
  std::fprintf(stderr, "train: %s\n", error.what());
  return error.status();
}

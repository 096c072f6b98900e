// SPDX-License-Identifier: Apache-2.0
#include "trainers/loop/training_state.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <thread>
#include <utility>

#include "src/base/error.h"
#include "tests/trainers/tiny.h"

namespace octet {
namespace {

using testing_trainers::message_of;

class TrainingState : public testing::Test {
 protected:
  TrainingState() { std::filesystem::create_directories(folder_); }
  ~TrainingState() override { std::filesystem::remove_all(folder_); }
  const std::string folder_ = testing::TempDir() + "octet_state_" + std::to_string(::getpid());
  const std::string path_ = folder_ + "/float.state.safetensors";
  const StateOwner owner_{"float", "0123abcd"};
};

TEST_F(TrainingState, HoldsPositionAndTensorsExactly) {
  const Position position{.epoch = 3,
                          .step = 17,
                          .loss_sum = 0.1 + 0.2,
                          .cross_entropy_sum = 0.7,
                          .correct = 5,
                          .seen = 9,
                          .seconds = 1.0 / 3,
                          .first_loss = 0.3 + 0.6};
  TensorFile file;
  const at::Tensor weight = at::arange(24, at::kFloat).view({2, 3, 2, 2}).contiguous(at::MemoryFormat::ChannelsLast);
  put_tensors(file, "weights", {{"conv.weight", weight}, {"count", at::zeros({}, at::kInt)}});
  write_state(path_, owner_, position, std::move(file));

  TensorFile read;
  const Position back = read_state(path_, owner_, read);
  EXPECT_EQ(back.epoch, 3);
  EXPECT_EQ(back.step, 17);
  EXPECT_FALSE(back.finished);
  EXPECT_EQ(back.loss_sum, position.loss_sum);
  EXPECT_EQ(back.cross_entropy_sum, position.cross_entropy_sum);
  EXPECT_EQ(back.seconds, position.seconds);
  EXPECT_EQ(back.correct, 5);
  EXPECT_EQ(back.seen, 9);
  EXPECT_EQ(back.first_loss, position.first_loss);

  const at::Tensor target = at::zeros({2, 3, 2, 2}).contiguous(at::MemoryFormat::ChannelsLast);
  restore_tensors(read, "weights", {{"conv.weight", target}, {"count", at::zeros({}, at::kInt)}}, path_);
  EXPECT_TRUE(target.equal(weight));
  EXPECT_TRUE(target.is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST_F(TrainingState, MayHaveNoFirstLossAsThoseOfOlderOctets) {
  write_state(path_, owner_, {.epoch = 3}, {});
  TensorFile file;
  EXPECT_EQ(read_state(path_, owner_, file).first_loss, std::nullopt);
  EXPECT_EQ(file.metadata.at("octet_state").find("first_loss"), std::string::npos);
}

TEST_F(TrainingState, IsWrittenBesideTraining) {
  StateWriter writer;
  for (int epoch = 1; epoch <= 3; ++epoch) {
    TensorFile file;
    at::Tensor weight = at::arange(1 << 20, at::kFloat).mul_(epoch);
    put_tensors(file, "weights", {{"fc.weight", weight}});
    writer.write(path_, owner_, {.epoch = epoch}, std::move(file));
    weight.zero_();  // the next step changes what was put
  }
  writer.wait();
  TensorFile read;
  EXPECT_EQ(read_state(path_, owner_, read).epoch, 3);
  EXPECT_TRUE(get_tensors(read, "weights").at("fc.weight").equal(at::arange(1 << 20, at::kFloat).mul_(3)));
}

/// As the thread does that ends the process of a rank which lost the others.
TEST_F(TrainingState, AnotherThreadWaitsForStatesThatAreBeingWritten) {
  StateWriter writer;
  TensorFile file;
  put_tensors(file, "weights", {{"fc.weight", at::zeros({1 << 24})}});
  writer.write(path_, owner_, {.epoch = 1}, std::move(file));
  bool written = false;
  std::thread([&] {
    wait_for_states();
    written = std::filesystem::exists(path_);
  }).join();
  EXPECT_TRUE(written);
}

TEST_F(TrainingState, WhatCouldNotBeWrittenIsToldByTheNextCallOnce) {
  StateWriter writer;
  const std::string nowhere = folder_ + "/none/state.safetensors";
  writer.write(nowhere, owner_, {}, {});
  writer.settle();
  EXPECT_NE(message_of(ExitCode::data, [&] { writer.wait(); }).find(nowhere), std::string::npos);
  EXPECT_NO_THROW(writer.wait());
  writer.write(nowhere, owner_, {}, {});
  EXPECT_NE(message_of(ExitCode::data, [&] { writer.write(path_, owner_, {}, {}); }).find(nowhere), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(TrainingState, EveryNumberIsReadAgain) {
  using Limits = std::numeric_limits<double>;
  for (const double x :
       {Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity(), Limits::max(), Limits::denorm_min(), 0.1 + 0.2}) {
    write_state(path_, owner_, {.loss_sum = x, .cross_entropy_sum = x, .seconds = x}, {});
    TensorFile file;
    const Position back = read_state(path_, owner_, file);
    for (const double number : {back.loss_sum, back.cross_entropy_sum, back.seconds}) {
      if (std::isnan(x)) {
        EXPECT_TRUE(std::isnan(number));
      } else {
        EXPECT_EQ(number, x);
      }
    }
  }
}

TEST_F(TrainingState, AWeightThatIsNoNumberIsNamedWithItsPlace) {
  at::Tensor weight = at::arange(24, at::kFloat).view({2, 3, 4});
  const auto message_for = [&](const std::string& name) {
    TensorFile file;
    put_tensors(file, "weights", {{name, weight}});
    return message_of(ExitCode::data, [&] { restore_weights(file, {{name, at::zeros({2, 3, 4})}}, path_); });
  };
  weight[1][2][3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_NE(message_for("conv.weight").find(path_ + ": tensor 'weights.conv.weight' holds nan at [1, 2, 3];"),
            std::string::npos)
      << message_for("conv.weight");
  weight[1][2][3] = -1;
  EXPECT_NE(message_for("bn.running_var").find("'weights.bn.running_var' holds -1 at [1, 2, 3]"), std::string::npos);
}

TEST_F(TrainingState, RefusesAnotherRunAndAnotherPhase) {
  write_state(path_, owner_, {}, {});
  TensorFile file;
  EXPECT_NE(message_of(ExitCode::usage,
                       [&] {
                         read_state(path_, {"float", "ffff"}, file);
                       })
                .find("another run"),
            std::string::npos);
  EXPECT_NE(message_of(ExitCode::usage,
                       [&] {
                         read_state(path_, {"qat", "0123abcd"}, file);
                       })
                .find(path_),
            std::string::npos);
}

TEST_F(TrainingState, RefusesAFileThatIsNoState) {
  write_safetensors(path_, {});
  TensorFile file;
  message_of(ExitCode::data, [&] { read_state(path_, owner_, file); });
  TensorFile damaged;
  damaged.metadata["octet_state"] = R"({"version": 4, "phase": "float", "fingerprint": "0123abcd", "epoch": "three"})";
  write_safetensors(path_, damaged);
  EXPECT_NE(message_of(ExitCode::data, [&] { read_state(path_, owner_, file); }).find("damaged"), std::string::npos);
}

TEST_F(TrainingState, AStateOfAnOlderOctetIsRefusedByNameWithTheCure) {
  TensorFile older;
  older.metadata["octet_state"] = R"({"version": 1, "phase": "float", "fingerprint": "0123abcd"})";
  write_safetensors(path_, older);
  TensorFile file;
  const std::string message = message_of(ExitCode::data, [&] { read_state(path_, owner_, file); });
  EXPECT_NE(message.find(path_ + ": state version 1 of an older octet"), std::string::npos) << message;
  EXPECT_NE(message.find("remove the file to start the phase anew"), std::string::npos) << message;
}

TEST_F(TrainingState, ATruncatedFileIsNamedWithTheCure) {
  TensorFile file;
  put_tensors(file, "weights", {{"a", at::zeros({100})}});
  write_state(path_, owner_, {}, std::move(file));
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) - 10);
  const std::string message = message_of(ExitCode::data, [&] { read_state(path_, owner_, file); });
  EXPECT_NE(message.find(path_), std::string::npos) << message;
  EXPECT_NE(message.find("remove it to start the phase anew"), std::string::npos) << message;
}

TEST_F(TrainingState, NamesATensorThatDoesNotFit) {
  TensorFile file;
  put_tensors(file, "weights", {{"a", at::zeros({2})}});
  const auto restore = [&](const NamedTensors& targets) {
    return message_of(ExitCode::data, [&] { restore_tensors(file, "weights", targets, path_); });
  };
  EXPECT_NE(restore({{"a", at::zeros({3})}}).find("'weights.a' has another shape"), std::string::npos);
  EXPECT_NE(restore({{"a", at::zeros({2}, at::kInt)}}).find("'weights.a' has another shape"), std::string::npos);
  EXPECT_NE(restore({{"a", at::zeros({2})}, {"b", at::zeros({2})}}).find("'weights.b' is missing"), std::string::npos);
  EXPECT_NE(restore({}).find("unexpected tensor 'weights.a'"), std::string::npos);
}

}  // namespace
}  // namespace octet

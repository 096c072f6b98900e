// What a recipe chooses by name and no other layer has an enum for: how training steps, and how weights are rounded.
#pragma once

#include <array>

#include "src/common/named.h"

namespace octet {

enum class OptimizerKind { sgd, adamw };
inline constexpr std::array<Named<OptimizerKind>, 2> kOptimizers = {
    {{OptimizerKind::sgd, "sgd"}, {OptimizerKind::adamw, "adamw"}}};

/// The course of the learning rate.
enum class ScheduleKind { step, cosine, one_cycle, constant };
inline constexpr std::array<Named<ScheduleKind>, 4> kSchedules = {{{ScheduleKind::step, "step"},
                                                                   {ScheduleKind::cosine, "cosine"},
                                                                   {ScheduleKind::one_cycle, "one_cycle"},
                                                                   {ScheduleKind::constant, "constant"}}};

/// In which several processes sum their gradients.
enum class ExchangeType { fp32, fp16 };
inline constexpr std::array<Named<ExchangeType>, 2> kExchangeTypes = {
    {{ExchangeType::fp32, "fp32"}, {ExchangeType::fp16, "fp16"}}};

/// Of weights after training.
enum class WeightRounding { nearest, adaround, block };
inline constexpr std::array<Named<WeightRounding>, 3> kWeightRoundings = {
    {{WeightRounding::nearest, "nearest"}, {WeightRounding::adaround, "adaround"}, {WeightRounding::block, "block"}}};

}  // namespace octet

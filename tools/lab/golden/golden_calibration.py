#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The thresholds that NVIDIA's calibrators choose for values that anybody can make again; octet's are held to them.
Octet's entropy counts what a range clips, NVIDIA's scales it away: its own thresholds come from a second form of both,
in numpy, which must choose as NVIDIA's does where it scales.

  golden_calibration.py tests/quant/golden_calibration.json

Writes the file that tests/quant/golden_calibration_test.cpp reads; a quarter of an hour on one core. Needs nvidia-modelopt
0.47 and torch, in an environment of their own: python3 -m venv ENV && ENV/bin/pip install nvidia-modelopt==0.47.0
torch==2.11.0 huggingface_hub.

The values come from a linear congruential generator and are exact in float32, so that the test makes the very same.
"""

import argparse
import json

import modelopt
import numpy as np
import torch
from modelopt.torch.quantization.calib import HistogramCalibrator, MseCalibrator
from modelopt.torch.quantization.tensor_quant import fake_tensor_quant

COUNT = 100_003  # so that no percentile falls between two values
BINS = 2048
PERCENTILES = (99.0, 99.9, 99.99)
MSE_STEP = 1 / 512  # of the largest magnitude
OUTLIERS = (30.30078125, -41.69921875, 38.19921875, -27.10546875, 35.60546875)


def bell():
    """Sums of twelve uniform numbers: nearly a normal distribution of deviation 2^16."""
    state, values = 1, []
    for _ in range(COUNT):
        total = 0
        for _ in range(12):
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            total += state >> 48
        values.append(total - 12 * 2**15)
    return np.array(values, dtype=np.int64)


def sets():
    """Name: values, in float32."""
    whole = bell()
    x = (whole + 0.5) / 2**16  # never at the edge of a bin
    short = 2 * (whole >> 9) + 1  # odd, too, and of 12 bits, whose squares are exact
    outliers = np.array(OUTLIERS)
    made = {
        "relu": np.maximum(x, 0),
        "relu_outliers": np.concatenate([np.maximum(x, 0), np.abs(outliers)]),
        "two_sided": x,
        "two_sided_outliers": np.concatenate([x, outliers]),
        "skewed": x + 2,
        "heavy_tails": short * np.abs(short) / 2**16,
    }
    for name, values in made.items():
        assert (values.astype(np.float32) == values).all(), name
    return {name: values.astype(np.float32) for name, values in made.items()}


def least_squares(values, bits, unsigned):
    """By MseCalibrator on the values themselves. The "mse" of HistogramCalibrator.compute_amax is no reference: in 0.47
    it hands the number of bits to fake_tensor_quant where that takes a bias, and always chooses its narrowest range.
    """

    def quantize(x, amax):
        return fake_tensor_quant(x, amax, None, bits, unsigned, False)  # all codes, as octet's activations

    x = torch.from_numpy(values)
    calibrator = MseCalibrator(
        x.abs().max(), step_size=MSE_STEP, start_multiplier=MSE_STEP, stop_multiplier=1.0, quant_func=quantize
    )
    calibrator.collect(x)
    return calibrator.compute_amax().item()


def entropy_over_octets_bins(values, bits, unsigned):
    """Octet's bins are a power of two wide and no more than BINS: over the very same ones both must choose alike."""
    magnitudes = np.abs(values)
    width = 2.0 ** np.ceil(np.log2(magnitudes.max() / BINS))
    bins = int(magnitudes.max() / width) + 1
    calibrator = HistogramCalibrator(num_bits=bits, unsigned=unsigned)
    calibrator._calib_bin_edges = torch.arange(bins + 1) * width
    calibrator._calib_hist = torch.from_numpy(np.bincount((magnitudes / width).astype(int), minlength=bins))
    return calibrator.compute_amax("entropy", start_bin=-(-bins // 16)).item()


def entropy_by_numpy(values, bits, unsigned, scaled_up):
    """`scaled_up`: as NVIDIA's, whose levels stand for the clipped values, too. Otherwise those are missing there."""
    magnitudes = np.abs(values.astype(np.float64))
    width = 2.0 ** np.ceil(np.log2(magnitudes.max() / BINS))
    counts = np.bincount((magnitudes / width).astype(int)).astype(np.float64)
    counts[0] = counts[1]  # zero has a code of its own
    bins, total, levels = len(counts), counts.sum(), 2**bits if unsigned else 2 ** (bits - 1)
    least, threshold = np.inf, None
    for size in range(bins, -(-bins // 16) - 1, -1):
        inside = counts[:size]
        level = np.arange(size) * levels // size
        filled = inside > 0
        with np.errstate(invalid="ignore", divide="ignore"):  # levels without values, which nothing below reads
            spread = (np.bincount(level, inside) / np.bincount(level, filled))[level]
        clipped = inside.copy()
        clipped[-1] += total - inside.sum()
        if clipped[-1] > 0 and not filled[-1]:
            continue
        divergence = (clipped[filled] / total * np.log(clipped[filled] / spread[filled])).sum()
        if scaled_up:
            divergence += np.log(inside.sum() / total)
        if divergence < least:
            least, threshold = divergence, size * width
    return threshold if scaled_up else min(threshold, magnitudes.max())


def thresholds(values, bits):
    unsigned = bool((values >= 0).all())
    calibrator = HistogramCalibrator(num_bits=bits, unsigned=unsigned, num_bins=BINS)
    calibrator.collect(torch.from_numpy(values))
    nvidias = entropy_over_octets_bins(values, bits, unsigned)
    assert entropy_by_numpy(values, bits, unsigned, scaled_up=True) == nvidias
    return {
        "bits": bits,
        "unsigned": unsigned,
        "percentile": {str(p): calibrator.compute_amax("percentile", percentile=p).item() for p in PERCENTILES},
        "mse": least_squares(values, bits, unsigned),
        "entropy": calibrator.compute_amax("entropy").item(),  # writes into the counts: last
        "entropy_over_octets_bins": nvidias,
        "entropy_of_octet": entropy_by_numpy(values, bits, unsigned, scaled_up=False),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out")
    out = parser.parse_args().out
    cases = []
    for name, values in sets().items():
        wide = values.astype(np.float64)
        facts = {"count": len(values), "sum": wide.sum().item(), "low": wide.min().item(), "high": wide.max().item()}
        cases.append({"values": name, **facts, "thresholds": [thresholds(values, bits) for bits in (8, 4)]})
        print(cases[-1], flush=True)
    made_by = f"tools/lab/golden/golden_calibration.py, nvidia-modelopt {modelopt.__version__}, torch {torch.__version__}"
    with open(out, "w", encoding="utf-8") as file:
        json.dump({"made_by": made_by, "bins": BINS, "mse_step": MSE_STEP, "cases": cases}, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One post-training quantization by another tool, as its documentation shows it, in a process of its own, for table.py.

  peer.py nncf|ort|ort_channel NAME.onnx IMAGES OUT      NAME.json stands beside it; all pictures of IMAGES are used

Prints one line of JSON: the seconds of the call alone, without the start of Python, and the tool's version.
"""
import json
import logging
import pathlib
import sys
import time

sys.dont_write_bytecode = True
import pictures  # noqa: E402


def nncf_quantize(network, settings, files, out):
    import nncf
    import openvino

    nncf.set_log_level(logging.ERROR)
    start = time.perf_counter()
    model = openvino.Core().read_model(network)
    dataset = nncf.Dataset(files, lambda file: pictures.prepare(file, settings)[None])
    openvino.save_model(nncf.quantize(model, dataset, subset_size=len(files)), out)
    return {"call_seconds": time.perf_counter() - start, "version": nncf.__version__, "openvino": openvino.__version__}


def onnxruntime_quantize(network, settings, files, out, per_channel):
    import onnxruntime
    from onnxruntime.quantization import CalibrationDataReader, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    logging.disable(logging.WARNING)

    class Reader(CalibrationDataReader):
        def __init__(self, name):
            self.items = iter({name: pictures.prepare(file, settings)[None]} for file in files)

        def get_next(self):
            return next(self.items, None)

    start = time.perf_counter()
    prepared = out + ".prepared.onnx"
    quant_pre_process(network, prepared, skip_symbolic_shape=True)  # for transformers; it refuses YOLO26's TopK
    name = onnxruntime.InferenceSession(prepared, providers=["CPUExecutionProvider"]).get_inputs()[0].name
    quantize_static(prepared, out, Reader(name), per_channel=per_channel)  # QDQ, int8 and min-max are the defaults
    pathlib.Path(prepared).unlink()
    return {"call_seconds": time.perf_counter() - start, "version": onnxruntime.__version__}


def main():
    tool, network, images, out = sys.argv[1:]
    settings = json.loads(pathlib.Path(network).with_suffix(".json").read_text())
    files = pictures.files_of(images)
    if tool == "nncf":
        answer = nncf_quantize(network, settings, files, out)
    else:
        answer = onnxruntime_quantize(network, settings, files, out, per_channel=tool == "ort_channel")
    print(json.dumps(answer))


if __name__ == "__main__":
    main()

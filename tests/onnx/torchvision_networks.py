#!/usr/bin/env python3
"""Exports torchvision's networks, and detectors, by both of PyTorch's exporters and compares octet's float outputs with ONNX Runtime's.

usage: torchvision_networks.py FOLDER PROGRAM [NETWORK ...]    PROGRAM: build/bin/onnx_logits
Needs torch, torchvision, onnx, onnxscript and onnxruntime, for yolov8n, yolo11n and yolo26n ultralytics (random weights from its
YAML files; the head gives each scale's boxes and classes as they come from its convolutions). yolox_nano reads the file
$YOLOX_ONNX and is cut before the boxes are put together; the rest is what stays outside. Files that are in FOLDER already are not
exported again.
Weights are random by seed, BatchNorm's factors too, and its statistics are those of two random pictures: a mistake in them
shows, and activations neither vanish nor explode on their way. Exits 1 where a
network that octet imports gives other logits than ONNX Runtime: more than 1e-4 of the largest logit, or of 1.
"""
import os
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import torch
import torchvision

LIMIT = 1e-4
BATCH = 2
NETWORKS = {  # name: pixels
    "alexnet": 224, "vgg16_bn": 224, "resnet18": 224, "resnet50": 224, "resnext50_32x4d": 224, "wide_resnet50_2": 224,
    "squeezenet1_1": 224, "googlenet": 224, "inception_v3": 299, "densenet121": 224, "mobilenet_v2": 224,
    "mobilenet_v3_large": 224, "mobilenet_v3_small": 224, "mnasnet1_0": 224, "shufflenet_v2_x1_0": 224,
    "regnet_y_400mf": 224, "efficientnet_b0": 224, "fcn_resnet50": 128, "deeplabv3_resnet50": 128,
    "ssdlite320_backbone": 320, "yolov8n": 320, "yolo11n": 320, "yolo26n": 320}
YOLOX = {"yolox_nano": 416}  # not exported here
YOLOX_OUTPUTS = ["onnx::Shape_1066", "onnx::Shape_1108", "output.1"]  # each scale's boxes, objectness and classes
ALL = NETWORKS | YOLOX
EXPORTERS = ("torchscript", "dynamo")


class Take(torch.nn.Module):
    def __init__(self, key):
        super().__init__()
        self.key = key

    def forward(self, x):
        return x[self.key]


class Values(torch.nn.Module):
    def forward(self, x):
        return tuple(x.values())


def raw_detector(name):
    from ultralytics.nn import tasks

    def scales(head, x):
        boxes, classes = (head.one2one_cv2, head.one2one_cv3) if head.end2end else (head.cv2, head.cv3)
        return tuple(torch.cat((boxes[i](x[i]), classes[i](x[i])), 1) for i in range(head.nl))

    model = tasks.DetectionModel(f"{name}.yaml", verbose=False)
    head = model.model[-1]
    head.forward = lambda x: scales(head, x)
    return model


def network(name):
    torch.manual_seed(1)
    if name.startswith("yolo"):
        model = raw_detector(name)
    elif name in ("fcn_resnet50", "deeplabv3_resnet50"):
        whole = getattr(torchvision.models.segmentation, name)(weights=None, weights_backbone=None)
        model = torch.nn.Sequential(whole.backbone, Take("out"), whole.classifier)
    elif name == "ssdlite320_backbone":
        whole = torchvision.models.detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None)
        model = torch.nn.Sequential(whole.backbone, Values())
    else:
        options = {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
        if name == "googlenet":
            options["aux_logits"] = False
        model = getattr(torchvision.models, name)(weights=None, **options)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 1.0  # the statistics of the last batch
            torch.nn.init.uniform_(module.weight, 0.5, 1.2)
            torch.nn.init.normal_(module.bias, 0, 0.1)
    side = NETWORKS[name]
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    model.train()(torch.randn(2, 3, side, side))
    return model.eval()


def export(name, exporter, path):
    if name in YOLOX:
        onnx.utils.extract_model(os.environ["YOLOX_ONNX"], str(path), ["images"], YOLOX_OUTPUTS)
        return
    model, side = network(name), NETWORKS[name]
    x = torch.zeros(1, 3, side, side)
    if exporter == "torchscript":
        torch.onnx.export(model, (x,), str(path), dynamo=False, opset_version=17, input_names=["image"],
                          dynamic_axes={"image": {0: "batch"}})
    else:
        torch.onnx.export(model, (torch.cat([x, x]),), str(path), dynamo=True, input_names=["image"], verbose=False,
                          dynamic_shapes=({0: torch.export.Dim("batch")},), external_data=False)


def expected(path, x):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    given = session.get_inputs()[0]
    one_by_one = given.shape[0] == 1  # exported for one picture
    runs = [session.run(None, {given.name: part}) for part in (x[:, None] if one_by_one else [x])]
    return np.concatenate([np.concatenate(outputs).reshape(-1) for outputs in zip(*runs)])


def compare(name, exporter, folder, program):
    """(what the table says, whether it is as it should be)."""
    path = folder / f"{name}.{exporter}.onnx"
    if not path.exists():
        try:
            export(name, exporter, path)
        except Exception as error:  # whatever an exporter cannot do is no fault of octet
            path.unlink(missing_ok=True)
            return f"not exported: {str(error).splitlines()[0][:90]}", True
    side = ALL[name]
    random = np.random.default_rng(7)
    x = random.standard_normal((BATCH, 3, side, side), np.float32)
    if name in YOLOX:  # trained on pixels
        x = random.integers(0, 256, x.shape).astype(np.float32)
    (folder / "input.f32").write_bytes(x.tobytes())
    answer = subprocess.run([program, path, folder / "input.f32", folder / "output.f32", str(BATCH)],
                            capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        message = answer.stderr.strip().splitlines()[-1] if answer.stderr.strip() else f"died: {answer.returncode}"
        return f"refused: {message.replace(str(path) + ': ', '')}", answer.returncode in (2, 3)
    ours, theirs = np.fromfile(folder / "output.f32", np.float32), expected(path, x)
    if ours.shape != theirs.shape:
        return f"{ours.size} outputs, ONNX Runtime has {theirs.size}", False
    largest = float(np.abs(theirs).max())
    difference = float(np.abs(ours - theirs).max())
    return (f"imported: largest difference {difference:.2e} of logits up to {largest:.2f}",
            difference <= LIMIT * max(1.0, largest))


def main():
    folder, program = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    names = sys.argv[3:] or list(NETWORKS) + list(YOLOX if "YOLOX_ONNX" in os.environ else [])
    failed = 0
    for name in names:
        for exporter in ("file",) if name in YOLOX else EXPORTERS:
            text, good = compare(name, exporter, folder, program)
            failed += not good
            print(f"{name:20} {exporter:12} {text}{'' if good else '   <-- WRONG'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main())

